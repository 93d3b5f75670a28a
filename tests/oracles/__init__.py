"""What protoc makes of our schemas: the judge of our own codecs. Generated, except this line."""
