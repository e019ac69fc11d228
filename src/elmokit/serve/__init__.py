"""`elmo serve`: the models over HTTP, and the page that shows them.

settings      what to serve, and where
limits        how much one request may ask for
refusals      errors as clients see them: {"error": {...}}
batching      the sentences of many clients, run together on one thread
hosted        the models, tasks, index and static vectors that are served
service       all of it, and where it stands: loading, ready, stopping
texts         sentences as clients give them -> tokens; marks: the word that is meant in them
choice        which layers a request asks for
expected      what the language models expect in every place of a sentence
requests      what routes take; answers: what they give, as OpenAPI documents it
formats       answers as JSON, npy or Arrow
metrics       figures for Prometheus
guard         before any route: bodies, time, token, clients that left
routes/       one file per family of routes
app           the FastAPI application
protocol      HTTP connections that take too long
server        the process: address, signals, the end
static/       the page
"""
