"""`elmo serve`: an HTTP service for models, and the explorer page.

settings      the settings and limits of the service
server        the process: address, connections, signals, shutdown
app           the FastAPI application
middleware    around all routes: Host header, token, bodies, memory, timeouts, disconnects
service       the state that the routes share: models, task models, index, queue, status
batching      computes the sentences of many requests together, on one thread
routes/       one file per group of routes; common.py has their shared parts
requests      the schemas of request bodies; responses: those of response bodies
errors        errors as responses: {"error": {...}}
metrics       metrics for Prometheus
static/       the explorer page
"""
