set statement_timeout = '8s'; set default_transaction_read_only = on
