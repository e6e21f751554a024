update sumaclock.preview_requests set result = %(result)s where id = %(id)s
