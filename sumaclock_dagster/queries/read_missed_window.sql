-- From the last look until now, less the time that a firing may take; no further back than runs are kept.
select greatest(l.looked_until, date_trunc('minute', now()) - %(retention)s * interval '1 day'),
       date_trunc('minute', now() - %(late)s * interval '1 second')
from sumaclock.missed_firings_look l
