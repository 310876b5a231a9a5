"""Payloads with a schema: decodes Avro, Protobuf and JSON by the schema id that they begin with."""
