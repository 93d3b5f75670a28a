"""What a long-lived node offers to other programs beside its API, and how they use it.

A *door* is a way into a node from outside its process and its network of peers. There are three:
the control socket for commands of the same user, the metrics page for Prometheus, and Flight for
programs that read and write topics in bulk. `doors` opens and closes them for a node; each is a
server (`control_server`, `metrics_server`, `flight_server`) around what can be asked of it, and
two of them have a client here.
"""
