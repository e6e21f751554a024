select name, value from sumaclock.clock_settings()
