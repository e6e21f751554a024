select coalesce(bool_or(s.value = 'on'), false) from sumaclock.clock_settings() s where s.name = 'cron.use_background_workers'
