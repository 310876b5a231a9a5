import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends one message by each codec of CODECS, with its name as id among null and empty headers. */
public class Codecs {
    public static void main(String[] args) {
        var text = new StringSerializer();
        for (var codec : System.getenv("CODECS").split(",")) {
            Map<String, Object> properties = Map.of(
                "bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"),
                "compression.type", codec);
            try (var producer = new KafkaProducer<>(properties, text, text)) {
                var record = new ProducerRecord<>(
                    System.getenv("TOPIC"), "key", "value ".repeat(500));
                record.headers()
                    .add("note", null)
                    .add("_DUPL_ID", null)
                    .add("_DUPL_ID", codec.getBytes(UTF_8))
                    .add("empty", new byte[0]);
                producer.send(record);
            }
        }
    }
}
