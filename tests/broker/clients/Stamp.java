import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import ringfence.kafka.DuplicateIdInterceptor;

/** Prints the id that each POINTER:VALUE of CASES gets, all in hexadecimal, or why it gets none. */
public class Stamp {
    public static void main(String[] args) {
        for (var each : System.getenv("CASES").split(",")) {
            var parts = each.split(":", -1);
            var interceptor = new DuplicateIdInterceptor<byte[], byte[]>();
            try {
                var pointer = new String(HexFormat.of().parseHex(parts[0]));
                interceptor.configure(Map.of("ringfence.id", pointer));
                var value = HexFormat.of().parseHex(parts[1]);
                var record = interceptor.onSend(new ProducerRecord<>("orders", value));
                var id = record.headers().lastHeader("_DUPL_ID").value();
                System.out.println(HexFormat.of().formatHex(id));
            } catch (KafkaException error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
