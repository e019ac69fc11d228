"""`elmo serve`: the models over HTTP, and the page that shows them.

settings      what to serve, and where
limits        how much one request may ask for
errors        errors as clients see them: {"error": {...}}
memory        how much all requests may hold at once
batching      the sentences of many clients, run together on one thread
hosted        the models, tasks, index and static vectors that are served
service       all of it, and its status: loading, ready, stopping
texts         sentences as clients give them -> tokens; marks: the word that is meant in them
choice        which layers a request asks for
requests      what routes take; answers: what they give, as OpenAPI documents it
formats       answers as JSON, npy or Arrow
metrics       what is counted, for Prometheus
middleware    around all routes: Host, token, bodies, timeouts, clients that disconnect
routes/       one file per family of routes
app           the FastAPI application
protocol      HTTP connections: header timeout, and a cap on their number
server        the process: address, signals, shutdown
static/       the page
"""
