select run_storage_id from instance_info order by id limit 1
