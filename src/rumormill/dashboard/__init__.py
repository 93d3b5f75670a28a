"""The dashboard: one page that shows a node, several, a simulation or a trace, live.

`http` is the house's HTTP server, `guard` says who may see the page, `server` has its paths and
`stream` feeds it. What is watched is a `Source` (`source`), which computes something only while
somebody looks.
"""
