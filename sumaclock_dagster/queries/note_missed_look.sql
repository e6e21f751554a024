update sumaclock.missed_firings_look set looked_until = %(until)s where looked_until < %(until)s
