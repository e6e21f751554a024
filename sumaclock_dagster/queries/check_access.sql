-- Anything but true refuses.
select o.organization_id, o.user_id, coalesce(sumaclock.owner_has_access(o.organization_id, o.user_id), false)
from unnest(%(organizations)s::text[], %(users)s::text[]) as o (organization_id, user_id)
