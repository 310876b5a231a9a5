import static java.nio.charset.StandardCharsets.UTF_8;

import java.math.BigDecimal;
import java.util.Date;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import ringfence.kafka.InsertDuplicateId;

/** Prints the id that the transform gives to each of some records, as a worker would write it. */
public class Transform {
    private static final Map<String, Object> PLAIN = Map.of("order", Map.of(
        "id", "o-17", "price", new BigDecimal("1E+3"), "paid", new Date(86_400_000), "is.new", true,
        "raw", new byte[] {'r'}, "not text", new byte[] {-1}));

    public static void main(String[] args) {
        var file = Map.of("path", "/a\"b", "host", "h");
        print("offset", Map.of(), source(file, Map.of("position", 42L, "line", 7), PLAIN));
        print("no offset", Map.of(), source(file, null, PLAIN));
        print("no offset, pass", Map.of("on.missing", "pass"), source(file, Map.of(), PLAIN));
        print("sink", Map.of(), new SinkRecord("orders", 0, null, "k", null, PLAIN, 5));
        print("sink, key", Map.of("field", "key"),
            new SinkRecord("orders", 0, null, "k", null, PLAIN, 5));
        for (var name : new String[] {"id", "price", "paid", "raw", "not text", "none"}) {
            print(name, Map.of("field", "value.order." + name), source(file, null, PLAIN));
        }
        print("no field", Map.of("field", "value.order"), source(file, null, PLAIN));
        print("tombstone", Map.of("field", "value.id"), source(file, null, null));
        var schema = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA).build();
        var struct = new Struct(schema).put("id", 99L);
        print("struct", Map.of("field", "value.id"), source(file, null, struct));
        print("struct, none", Map.of("field", "value.number"), source(file, null, struct));
        var stamped = source(file, null, PLAIN);
        stamped.headers().addString("_AMQ_DUPL_ID", "own");
        print("own", Map.of("field", "value.order.id"), stamped);
        print("path", Map.of("field", "order.id"), stamped);
        print("on.missing", Map.of("on.missing", "skip"), stamped);
    }

    private static SourceRecord source(Map<String, ?> from, Map<String, ?> offset, Object value) {
        return new SourceRecord(from, offset, "orders", null, value);
    }

    private static <R extends ConnectRecord<R>> void print(
        String name, Map<String, String> configs, R record) {
        try (var transform = new InsertDuplicateId<R>()) {
            transform.configure(configs);
            var header = transform.apply(record).headers().lastWithName("_DUPL_ID");
            System.out.println(name + ": " + (header == null ? null : new String(
                new SimpleHeaderConverter().fromConnectHeader(
                    "orders", header.key(), header.schema(), header.value()), UTF_8)));
        } catch (KafkaException error) {
            System.out.println(name + ": " + error.getMessage());
        }
    }
}
