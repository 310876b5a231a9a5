"""Payloads that a schema describes: Avro, Protobuf and JSON, by the id at their beginning."""
