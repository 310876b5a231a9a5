import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends messages through the interceptor, most of them twice, with each kind of ringfence.id. */
public class Intercepted {
    public static void main(String[] args) {
        send("key", record("key-1", "by key"), record("key-1", "by key"));
        send("header:order", withHeader(), withHeader());
        var json = "{\"order\": {\"id\": 4711}}";
        send("json:/order/id", record(null, json), record(null, json));
        var counted = record(null, "by counter");
        send("counter:billing", counted, counted, record(null, "by counter"));
        send("counter:billing", record(null, "by counter"));
        var own = record("key-2", "id of its own");
        own.headers().add("_AMQ_DUPL_ID", "own".getBytes(UTF_8));
        send("key", own, record(null, "no key"));
    }

    private static ProducerRecord<String, String> record(String key, String value) {
        return new ProducerRecord<>(System.getenv("TOPIC"), key, value);
    }

    private static ProducerRecord<String, String> withHeader() {
        var record = record(null, "by header");
        record.headers().add("order", null).add("order", new byte[] {-1, 0});
        return record;
    }

    @SafeVarargs
    private static void send(String id, ProducerRecord<String, String>... records) {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"),
            "interceptor.classes", "ringfence.kafka.DuplicateIdInterceptor",
            "ringfence.id", id);
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<>(properties, text, text)) {
            for (var record : records) {
                producer.send(record);
            }
        }
    }
}
