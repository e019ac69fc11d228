"""`elmo serve`: an HTTP service for models, and the explorer page.

settings      settings and limits of the service
server        the server process: address, connections, signals and shutdown
app           the FastAPI application
middleware    checks and limits for all routes: Host header, token, body, memory and timeouts
service       the state that the routes share: models, task models, index, queue, status
batching      a queue that combines sentences of several requests into batches
routes/       one module per group of routes; common.py contains shared functions
requests      schemas of request bodies
responses     schemas of response bodies
errors        error responses: {"error": {...}}
metrics       Prometheus metrics
static/       the explorer page
"""
