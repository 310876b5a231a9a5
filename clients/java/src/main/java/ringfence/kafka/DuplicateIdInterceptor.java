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
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Gives each message without a duplicate id one in the header {@code _DUPL_ID}.
 *
 * <p>{@code ringfence.id} says what the id is: {@code key}, {@code header:NAME},
 * {@code json:/POINTER} for a member of a value that is JSON, or {@code counter:NAME} for the name,
 * a part that is new for each producer instance, and a counter. An id of the last kind is new for
 * each message, and stays the same only if the same ProducerRecord object is sent again.
 *
 * <p>A message that lacks the configured part is sent without an id, and the producer logs why:
 * Kafka does not let an interceptor refuse a message.
 */
public final class DuplicateIdInterceptor<K, V> implements ProducerInterceptor<K, V> {
    /** The configuration key that says what the id is. */
    public static final String ID = "ringfence.id";

    private static final String CHOICES = "key, header:NAME, json:/POINTER or counter:NAME";

    private Function<ProducerRecord<?, ?>, byte[]> source;

    /** Reads {@code ringfence.id}; ConfigException, which ends the producer, says what to set. */
    @Override
    public void configure(Map<String, ?> configs) {
        source = idSource(Objects.toString(configs.get(ID), ""));
    }

    /** Adds the id to the record's own headers, so that sending the object again keeps it. */
    @Override
    public ProducerRecord<K, V> onSend(ProducerRecord<K, V> record) {
        if (Ids.HEADERS.stream().anyMatch(name -> first(record.headers(), name) != null)) {
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
            record.headers().add(Ids.HEADER, id);
            return record;
        } catch (IllegalStateException isReadOnly) {  // the object was sent without an id before
            var headers = new RecordHeaders(record.headers().toArray()).add(Ids.HEADER, id);
            return new ProducerRecord<>(record.topic(), record.partition(), record.timestamp(),
                record.key(), record.value(), headers);
        }
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception error) {}

    @Override
    public void close() {}

    private static Function<ProducerRecord<?, ?>, byte[]> idSource(String choice) {
        int colon = choice.indexOf(':');
        var kind = colon < 0 ? choice : choice.substring(0, colon);
        var name = colon < 0 ? "" : choice.substring(colon + 1);
        if (choice.equals("key")) {
            return record -> bytes(record.key());
        }
        if (kind.equals("header") && !name.isEmpty()) {
            return record -> present(first(record.headers(), name), "it has no header " + name);
        }
        if (kind.equals("counter") && !name.isEmpty()) {
            var prefix = name + "-" + UUID.randomUUID() + "-";
            var counter = new AtomicLong();
            return record -> Ids.encoded(prefix + counter.incrementAndGet());
        }
        if (kind.equals("json") && colon > 0) {
            try {
                var pointer = new JsonPointer(name);
                return record -> Ids.encoded(pointer.textIn(text(record.value())));
            } catch (IllegalArgumentException error) {
                throw new ConfigException(ID, choice, error.getMessage());
            }
        }
        throw new ConfigException(ID, choice, "set it to " + CHOICES);
    }

    private static byte[] first(Headers headers, String name) {
        for (Header header : headers.headers(name)) {
            if (header.value() != null) {
                return header.value();
            }
        }
        return null;
    }

    private static byte[] bytes(Object key) {
        if (present(key, "it has no key") instanceof byte[] bytes) {
            return bytes;
        }
        if (key instanceof CharSequence || key instanceof Number || key instanceof UUID) {
            return Ids.encoded(key.toString());
        }
        throw new IllegalArgumentException(
            "a key of " + key.getClass().getName() + " is not text, a number, a UUID or bytes");
    }

    private static String text(Object value) {
        if (present(value, "it has no value") instanceof byte[] bytes) {
            return Ids.decoded(bytes);
        }
        if (value instanceof CharSequence) {
            return value.toString();
        }
        throw new IllegalArgumentException(
            "a value of " + value.getClass().getName() + " is not JSON as text or bytes");
    }

    private static <T> T present(T part, String otherwise) {
        if (part == null) {
            throw new IllegalArgumentException(otherwise);
        }
        return part;
    }
}
