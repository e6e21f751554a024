call sumaclock.run_jobs(slot => {slot}, look_for => '{seconds} seconds')
