package ringfence.kafka;

import java.util.UUID;
import java.util.function.Function;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/**
 * What is read from a message before it is serialized. Each function throws
 * IllegalArgumentException, with the reason, for a message that lacks the field.
 */
final class MessageField {
    private MessageField() {}

    /** Returns the field, or null for other names; IllegalArgumentException for a wrong pointer. */
    static Function<ProducerRecord<?, ?>, byte[]> named(String text) {
        int colon = text.indexOf(':');
        var kind = colon < 0 ? text : text.substring(0, colon);
        var argument = text.substring(colon + 1);
        if (text.equals("key")) {
            return record -> bytes(record.key());
        }
        if (kind.equals("header") && colon > 0 && !argument.isEmpty()) {
            return record ->
                present(first(record.headers(), argument), "it has no header " + argument);
        }
        if (kind.equals("json") && colon > 0) {
            var pointer = new JsonPointer(argument);
            return record -> Ids.encoded(pointer.textIn(json(record.value(), "value")));
        }
        if (kind.equals("key-json") && colon > 0) {
            var pointer = new JsonPointer(argument);
            return record -> Ids.encoded(pointer.textIn(json(record.key(), "key")));
        }
        return null;
    }

    /** Returns the first value of a header that is not null, or null. */
    static byte[] first(Headers headers, String name) {
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

    private static String json(Object part, String where) {
        if (present(part, "it has no " + where) instanceof byte[] bytes) {
            return Ids.decoded(bytes);
        }
        if (part instanceof CharSequence) {
            return part.toString();
        }
        throw new IllegalArgumentException(
            "a " + where + " of " + part.getClass().getName() + " is not JSON as text or bytes");
    }

    private static <T> T present(T part, String otherwise) {
        if (part == null) {
            throw new IllegalArgumentException(otherwise);
        }
        return part;
    }
}
