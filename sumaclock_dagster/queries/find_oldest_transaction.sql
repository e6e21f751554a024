select seconds, who from sumaclock.oldest_transaction()
