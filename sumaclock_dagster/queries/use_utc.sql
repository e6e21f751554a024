set time zone 'UTC'
