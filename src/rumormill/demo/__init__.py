"""The demonstration: real nodes in processes of their own, killed on the way, watched by Spark.

It uses what everybody can use: the command `rumormill node` and its control socket,
`rumormill.Node`, the data source, the mill and the report. What is here decides who does what when
(`script`), does it, checks afterwards what the logs hold, compares the runs (`network`, `run`), and
lets Spark read along (`lake`).
"""
