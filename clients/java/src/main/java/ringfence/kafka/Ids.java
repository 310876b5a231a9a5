package ringfence.kafka;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** The headers that carry a duplicate id, and how the bytes and the text of an id are made. */
final class Ids {
    static final String HEADER = "_DUPL_ID";
    /** All headers in which Ringfence looks for an id. */
    static final List<String> HEADERS = List.of(HEADER, "_AMQ_DUPL_ID", "_HQ_DUPL_ID");

    private Ids() {}

    /** Returns text as UTF-8; IllegalArgumentException if a surrogate in it is unpaired. */
    static byte[] encoded(String text) {
        try {
            var buffer = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            var bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw new IllegalArgumentException("it has an unpaired surrogate", error);
        }
    }

    /** Returns the text of UTF-8; IllegalArgumentException for other bytes. */
    static String decoded(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException error) {
            throw new IllegalArgumentException("it is not UTF-8 text", error);
        }
    }
}
