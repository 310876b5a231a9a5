"""A notebook to copy: what Ringfence let through, and what it kept out, read with Spark.

Each `# %%` begins a cell. KAFKA_BOOTSTRAP_SERVERS, OUTPUT and DEAD_LETTERS name what is read; the
topics are those of the demo where none are named. `make spark-notebook` runs all of it on what
`make run ARGS=--exit` left behind; on a cluster of yours:

    KAFKA_BOOTSTRAP_SERVERS=kafka:9092 OUTPUT=orders.unique DEAD_LETTERS=orders.dlq \
        spark-submit --jars "$(ringfence pipeline jars)" docs/examples/read_output.py
"""

# %% A session: yours, with Spark's connector to Kafka.
import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ringfence.spark import read_dead_letters, read_output

spark = SparkSession.builder.getOrCreate()
servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
output = os.environ.get("OUTPUT", "flights.unique")
dead_letters = os.environ.get("DEAD_LETTERS", "flights.dlq")

# %% Messages, each once: only what was committed, headers and claims as columns.
flights = read_output(spark, servers, output)
flights.printSchema()
flights.selectExpr("timestamp", "decode(duplicate_id, 'utf-8') AS id", "key").show(5)

# %% Bytes stay bytes until you say what they are. Count rows, never offsets: those have gaps.
carriers = flights.select(
    sf.get_json_object(sf.decode("value", "utf-8"), "$.carrier").alias("carrier")
)
carriers.groupBy("carrier").count().orderBy(sf.desc("count")).show(5)
print(f"{flights.count()} messages")

# %% What was kept out, why, and how long after the record that was accepted.
letters = read_dead_letters(spark, servers, dead_letters)
letters.groupBy("reason", "address").count().show()
letters.select("id", "original", "input_timestamp").show(5, truncate=False)

# %% The same as a stream: here into memory, and to the end of what there is.
stream = read_output(spark, servers, output, stream=True)
query = (
    stream.groupBy(sf.window("timestamp", "1 day"))
    .count()
    .writeStream.format("memory")
    .queryName("per_day")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.sql("SELECT sum(count) AS messages FROM per_day").show()
