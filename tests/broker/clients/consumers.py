"""A consumer for each client, which prints the values of TOPIC up to the one that is `end`.

SETTING stands where the row of the client in docs/consuming.md says what to set. Clients of which
that page warns have the setting that should be enough.
"""

from typing import Final

from tests.broker.clients import (
    AIOKAFKA,
    CONFLUENT,
    FRANZ_GO,
    JAVA,
    KAFKA_GO,
    KAFKAJS,
    KCAT,
    PLATFORMATIC,
    Client,
)

_CONFLUENT: Final = """
import os
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": os.environ["TOPIC"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **dict(each.split("=") for each in "SETTING".split()),
    }
)
consumer.subscribe([os.environ["TOPIC"]])
value = b""
while value != b"end":
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        value = message.value()
        print(value.decode())
consumer.close()
"""

_AIOKAFKA: Final = """
import asyncio
import os
from aiokafka import AIOKafkaConsumer

async def main():
    async with AIOKafkaConsumer(
        os.environ["TOPIC"],
        bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        auto_offset_reset="earliest",
        SETTING,
    ) as consumer:
        async for message in consumer:
            print(message.value.decode())
            if message.value == b"end":
                return

asyncio.run(main())
"""

_JAVA: Final = """
import java.io.StringReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Read {
    public static void main(String[] args) throws Exception {
        var properties = new Properties();
        properties.put("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        properties.load(new StringReader("SETTING"));
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(properties, text, text)) {
            var partitions = List.of(new TopicPartition(System.getenv("TOPIC"), 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (var value = ""; !value.equals("end"); ) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    value = record.value();
                    System.out.println(value);
                }
            }
        }
    }
}
"""

_FRANZ_GO: Final = """
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumeTopics(os.Getenv("TOPIC")),
		SETTING,
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for value := ""; value != "end"; {
		client.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) {
			value = string(record.Value)
			fmt.Println(value)
		})
	}
}
"""

_KAFKAJS: Final = """
const { Kafka } = require("kafkajs");

async function main() {
  const kafka = new Kafka({ brokers: process.env.KAFKA_BOOTSTRAP_SERVERS.split(","), logLevel: 1 });
  const consumer = kafka.consumer({ groupId: "kafkajs-" + process.pid, SETTING, });
  await consumer.connect();
  await consumer.subscribe({ topic: process.env.TOPIC, fromBeginning: true });
  await new Promise((resolve) => consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString());
      if (message.value.toString() === "end") resolve();
    },
  }));
  await consumer.disconnect();
}

main();
"""

_KCAT: Final = """
setting="SETTING"
kcat -C -e -q -b "$KAFKA_BOOTSTRAP_SERVERS" -t "$TOPIC" -o beginning ${setting:+-X "$setting"}
"""

CONSUMERS: Final[dict[Client, str]] = {
    CONFLUENT: _CONFLUENT,
    AIOKAFKA: _AIOKAFKA,
    JAVA: _JAVA,
    FRANZ_GO: _FRANZ_GO,
    KAFKAJS: _KAFKAJS,
    KCAT: _KCAT,
}

_KAFKA_GO: Final = """
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/segmentio/kafka-go"
)

func main() {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        []string{os.Getenv("KAFKA_BOOTSTRAP_SERVERS")},
		Topic:          os.Getenv("TOPIC"),
		IsolationLevel: kafka.ReadCommitted,
	})
	defer reader.Close()
	for value := ""; value != "end"; {
		message, err := reader.ReadMessage(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		value = string(message.Value)
		fmt.Println(value)
	}
}
"""

_PLATFORMATIC: Final = """
const { Consumer, FetchIsolationLevels } = require("@platformatic/kafka");

// The client asks for Node 22, and this is what it lacks in Node 20.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

async function main() {
  const consumer = new Consumer({
    clientId: "reader",
    groupId: "platformatic-" + process.pid,
    bootstrapBrokers: process.env.KAFKA_BOOTSTRAP_SERVERS.split(","),
    isolationLevel: FetchIsolationLevels.READ_COMMITTED,
  });
  const stream = await consumer.consume({ topics: [process.env.TOPIC], mode: "earliest" });
  for await (const message of stream) {
    console.log(message.value.toString());
    if (message.value.toString() === "end") break;
  }
  await consumer.close(true);
}

main();
"""

UNABLE: Final[dict[Client, str]] = {KAFKA_GO: _KAFKA_GO, PLATFORMATIC: _PLATFORMATIC}
"""Consumers that give the program records of aborted transactions all the same."""


def program(client: Client, setting: str) -> str:
    """Return the consumer of a client with a setting, or with its default for an empty one."""
    text = CONSUMERS[client]
    # Where it is one of several arguments, its comma goes with it.
    return text.replace("SETTING" if setting else "SETTING,", setting).replace("SETTING", setting)
