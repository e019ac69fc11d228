"""`elmo serve`: an HTTP service for models, and the explorer page.

settings      the settings of the service
limits        limits on a request, on the queue, and on the memory of all requests
errors        errors as responses: {"error": {...}}
batching      computes the sentences of many requests together, on one thread
hosted        the models, task models, index and static vectors that are served
service       the state that the routes share, and its status: loading, ready, stopping
texts         tokenizes sentences and finds the words that a request selects
requests      the bodies of requests; answers: those of responses, as OpenAPI documents them
formats       responses as JSON, npy or Arrow
metrics       metrics for Prometheus
middleware    around all routes: Host, token, bodies, timeouts, disconnects
routes/       one file per group of routes
app           the FastAPI application
protocol      HTTP connections: header timeout, and a limit on their number
server        the process: address, signals, shutdown
static/       the page
"""
