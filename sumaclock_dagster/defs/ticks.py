"""How long a sensor that waits for news does so within one tick."""

# Dagster's daemon looks every 5 s whether a tick is over and the next one is to begin. It ends shortly before such a
# look, so that hardly any news has to wait for the next tick. With 20 s it would end just after one, and a fifth of all
# news would come while nobody waits for it.
WATCH_SECONDS = 19.0
