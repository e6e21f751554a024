select current_user::text
