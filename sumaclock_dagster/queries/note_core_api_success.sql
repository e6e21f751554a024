update sumaclock.core_api_line set failures = 0, pauses = 0, closed_until = null, width = least(width + 1, 1000)
