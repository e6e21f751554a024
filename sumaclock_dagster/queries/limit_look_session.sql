-- A look only looks, and waits for nobody's lock.
set statement_timeout = '15s'; set lock_timeout = '3s'; set default_transaction_read_only = on
