call sumaclock.watch_jobs(look_for => '{seconds} seconds')
