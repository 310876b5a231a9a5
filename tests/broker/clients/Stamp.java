import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import ringfence.kafka.DuplicateIdInterceptor;

/**
 * Prints the id that each CHOICE:KEY:VALUE:NAME:HEADER… of CASES gets, all in hexadecimal with - for
 * null, or why it gets none.
 */
public class Stamp {
    public static void main(String[] args) {
        for (var each : System.getenv("CASES").split(",")) {
            var parts = each.split(":", -1);
            var interceptor = new DuplicateIdInterceptor<byte[], byte[]>();
            try {
                interceptor.configure(Map.of("ringfence.id", new String(bytes(parts[0]))));
                var headers = new RecordHeaders();
                for (int at = 3; at < parts.length; at += 2) {
                    headers.add(new String(bytes(parts[at])), bytes(parts[at + 1]));
                }
                var record = interceptor.onSend(new ProducerRecord<>(
                    "orders", null, null, bytes(parts[1]), bytes(parts[2]), headers));
                var id = record.headers().lastHeader("_DUPL_ID").value();
                System.out.println(HexFormat.of().formatHex(id));
            } catch (KafkaException error) {
                System.out.println(error.getMessage());
            }
        }
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HexFormat.of().parseHex(hex);
    }
}
