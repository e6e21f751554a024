select set_config('synchronous_commit', 'off', false)
