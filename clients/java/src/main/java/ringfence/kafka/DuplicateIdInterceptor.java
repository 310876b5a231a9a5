package ringfence.kafka;

import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Gives each message without a duplicate id one in the header {@code _DUPL_ID}.
 *
 * <p>{@code ringfence.id} says what the id is: {@code key}, {@code header:NAME},
 * {@code json:/POINTER} for a member of a value that is JSON, {@code key-json:/POINTER} for one of
 * the key, a template of these such as {@code {header:tenant}.{json:/order/id or key}}, or
 * {@code counter:NAME} for the name, a part that is new for each producer instance, and a counter.
 * An id of the last kind is new for each message, and stays the same only if the same
 * ProducerRecord object is sent again.
 *
 * <p>A message that lacks the configured part is sent without an id, and the producer logs why:
 * Kafka does not let an interceptor refuse a message.
 */
public final class DuplicateIdInterceptor<K, V> implements ProducerInterceptor<K, V> {
    /** The configuration key that says what the id is. */
    public static final String ID = "ringfence.id";

    private static final String CHOICES =
        "key, header:NAME, json:/POINTER, a template of {these}, or counter:NAME";

    private Function<ProducerRecord<?, ?>, byte[]> source;

    /** Reads {@code ringfence.id}; ConfigException, which ends the producer, says what to set. */
    @Override
    public void configure(Map<String, ?> configs) {
        source = idSource(Objects.toString(configs.get(ID), ""));
    }

    /** Adds the id to the record's own headers, so that sending the object again keeps it. */
    @Override
    public ProducerRecord<K, V> onSend(ProducerRecord<K, V> record) {
        var headers = record.headers();
        if (Ids.HEADERS.stream().anyMatch(name -> MessageField.first(headers, name) != null)) {
            return record;
        }
        byte[] id;
        try {
            id = source.apply(record);
        } catch (IllegalArgumentException error) {
            throw new KafkaException("The message for " + record.topic() + " is sent without a "
                + Ids.HEADER + ": " + error.getMessage() + ". Set the header where the message is"
                + " made, or change " + ID + ".", error);
        }
        try {
            headers.add(Ids.HEADER, id);
            return record;
        } catch (IllegalStateException isReadOnly) {  // the object was sent without an id before
            var copied = new RecordHeaders(headers.toArray()).add(Ids.HEADER, id);
            return new ProducerRecord<>(record.topic(), record.partition(), record.timestamp(),
                record.key(), record.value(), copied);
        }
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception error) {}

    @Override
    public void close() {}

    private static Function<ProducerRecord<?, ?>, byte[]> idSource(String choice) {
        if (choice.matches("counter:.+")) {
            var prefix = choice.substring("counter:".length()) + "-" + UUID.randomUUID() + "-";
            var counter = new AtomicLong();
            return record -> Ids.encoded(prefix + counter.incrementAndGet());
        }
        try {
            var field = MessageField.named(choice);
            if (field == null && choice.contains("{")) {
                field = new IdTemplate(choice);
            }
            if (field != null) {
                return field;
            }
        } catch (IllegalArgumentException error) {
            throw new ConfigException(ID, choice, error.getMessage());
        }
        throw new ConfigException(ID, choice, "set it to " + CHOICES);
    }
}
