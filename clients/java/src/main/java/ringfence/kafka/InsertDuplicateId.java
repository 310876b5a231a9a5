package ringfence.kafka;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.Date;
import java.util.HexFormat;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Gives each record without a duplicate id one in the header {@code _DUPL_ID}, as a string.
 *
 * <p>Without {@code field} the id is the topic with the source partition and source offset of the
 * record. Use that only for a connector whose source offset differs from record to record. With
 * {@code field} the id is a field of the key or value, such as {@code value.order.id}.
 *
 * <p>The worker's header converter has to write a string as its UTF-8 text: the default,
 * SimpleHeaderConverter, and StringConverter do.
 */
public final class InsertDuplicateId<R extends ConnectRecord<R>>
    implements Transformation<R>, Versioned {
    /** The configuration key of the field that is the id; empty for the source offset. */
    public static final String FIELD = "field";
    /** The configuration key that says what becomes of a record that has no such field. */
    public static final String ON_MISSING = "on.missing";

    private static final Pattern PATH = Pattern.compile("((key|value)(\\.[^.]+)*)?");
    private static final ConfigDef CONFIG = new ConfigDef()
        .define(FIELD, ConfigDef.Type.STRING, "",
            ConfigDef.LambdaValidator.with(InsertDuplicateId::checkPath, () -> "key.… or value.…"),
            ConfigDef.Importance.HIGH, "The field that is the id, such as value.order.id or key;"
                + " empty for the source partition and source offset of the record.")
        .define(ON_MISSING, ConfigDef.Type.STRING, "fail", ConfigDef.ValidString.in("fail", "pass"),
            ConfigDef.Importance.MEDIUM, "What becomes of a record without that field, or without a"
                + " source offset: fail, or pass without an id.");

    private String[] path;
    private boolean isPassed;

    @Override
    public ConfigDef config() {
        return CONFIG;
    }

    @Override
    public String version() {
        var version = getClass().getPackage().getImplementationVersion();
        return Objects.requireNonNullElse(version, "undefined");
    }

    @Override
    public void configure(Map<String, ?> configs) {
        var config = new AbstractConfig(CONFIG, configs, false);
        var field = config.getString(FIELD);
        path = field.isEmpty() ? new String[0] : field.split("\\.");
        isPassed = config.getString(ON_MISSING).equals("pass");
    }

    /** Returns the record with an id; DataException if it has none and {@code on.missing} fails. */
    @Override
    public R apply(R record) {
        for (Header header : record.headers()) {
            if (Ids.HEADERS.contains(header.key()) && header.value() != null) {
                return record;
            }
        }
        var id = path.length == 0 ? position(record) : field(record);
        if (id != null) {
            var headers = record.headers().duplicate().addString(Ids.HEADER, id);
            return record.newRecord(record.topic(), record.kafkaPartition(), record.keySchema(),
                record.key(), record.valueSchema(), record.value(), record.timestamp(), headers);
        }
        if (isPassed) {
            return record;
        }
        var lacks = path.length == 0
            ? "source offset, so set " + FIELD + " to a field that is its id"
            : "field " + String.join(".", path) + ", so change " + FIELD;
        throw new DataException("A record for " + record.topic() + " has no " + lacks
            + ", or set " + ON_MISSING + " to pass.");
    }

    @Override
    public void close() {}

    private String position(R record) {
        if (!(record instanceof SourceRecord source)) {
            throw new DataException("Only records of a source connector have a source offset: set "
                + FIELD + " to a field that is the id.");
        }
        if (source.sourceOffset() == null || source.sourceOffset().isEmpty()) {
            return null;
        }
        return record.topic() + written(source.sourcePartition()) + written(source.sourceOffset());
    }

    /** Writes a map in the order of its names, and so that no two maps are written alike. */
    private static String written(Map<String, ?> map) {
        return new TreeMap<>(map == null ? Map.of() : map).entrySet().stream()
            .map(entry -> quoted(entry.getKey()) + ":" + written(entry.getValue()))
            .collect(Collectors.joining(",", "{", "}"));
    }

    private static String written(Object value) {
        if (value instanceof byte[] bytes) {
            return "0x" + HexFormat.of().formatHex(bytes);
        }
        return value instanceof String text ? quoted(text) : String.valueOf(value);
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private String field(R record) {
        Object found = path[0].equals("key") ? record.key() : record.value();
        for (int depth = 1; depth < path.length && found != null; depth++) {
            if (found instanceof Struct struct) {
                var isThere = struct.schema().field(path[depth]) != null;
                found = isThere ? struct.get(path[depth]) : null;
            } else {
                found = found instanceof Map<?, ?> map ? map.get(path[depth]) : null;
            }
        }
        return found == null ? null : text(found, record.topic());
    }

    private String text(Object found, String topic) {
        try {
            if (found instanceof String || found instanceof Number || found instanceof Boolean) {
                return found instanceof BigDecimal number ? number.toPlainString() : found.toString();
            }
            if (found instanceof Date date) {
                return Long.toString(date.getTime());
            }
            if (found instanceof byte[] bytes) {
                return Ids.decoded(bytes);
            }
            if (found instanceof ByteBuffer buffer) {
                var bytes = new byte[buffer.remaining()];
                buffer.duplicate().get(bytes);
                return Ids.decoded(bytes);
            }
        } catch (IllegalArgumentException error) {
            throw refused(topic, error.getMessage());
        }
        throw refused(topic, "it is a " + found.getClass().getSimpleName());
    }

    private DataException refused(String topic, String cause) {
        return new DataException("The field " + String.join(".", path) + " of a record for " + topic
            + " cannot be an id: " + cause + ". Set " + FIELD + " to text, a number or a time.");
    }

    private static void checkPath(String name, Object value) {
        if (!PATH.matcher(String.valueOf(value)).matches()) {
            throw new ConfigException(name, value,
                "begin it with key or value, as in value.order.id, or leave it out");
        }
    }
}
