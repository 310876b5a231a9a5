import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamUtils;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The same ring as ours on Flink: the last {@code size} ids of each partition, duplicates to a
 * dead-letter topic, exactly once. Source, ring and sink are one task, without a shuffle.
 *
 * <p>Arguments: bootstrap servers, group, input, output, dead letters, checkpoint folder, size, state
 * (`hashmap`: rings in objects of the operator; `rocksdb`: keyed state), milliseconds between
 * checkpoints.
 */
public final class FlinkPeer {
    private FlinkPeer() {}

    public static void main(String[] arguments) throws Exception {
        boolean isKeyed = arguments[7].equals("rocksdb");
        Configuration settings = new Configuration();
        settings.set(StateBackendOptions.STATE_BACKEND, arguments[7]);
        settings.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, true);
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + arguments[5]);
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        environment.getConfig().enableObjectReuse();
        environment.enableCheckpointing(
                Long.parseLong(arguments[8]), CheckpointingMode.EXACTLY_ONCE);
        DataStream<Message> messages =
                environment.fromSource(source(arguments), WatermarkStrategy.noWatermarks(), "input");
        int size = Integer.parseInt(arguments[6]);
        DataStream<Message> judged =
                isKeyed
                        ? DataStreamUtils.reinterpretAsKeyedStream(
                                        messages, message -> message.record.partition(), Types.INT)
                                .map(new KeyedRing(size))
                        : messages.map(new Ring(size));
        judged.sinkTo(sink(arguments));
        environment.execute("ring");
    }

    private static KafkaSource<Message> source(String[] arguments) {
        return KafkaSource.<Message>builder()
                .setBootstrapServers(arguments[0])
                .setGroupId(arguments[1])
                .setTopics(arguments[2])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed")
                .setDeserializer(new Reader())
                .build();
    }

    private static KafkaSink<Message> sink(String[] arguments) {
        String unique = arguments[3];
        String dead = arguments[4];
        KafkaRecordSerializationSchema<Message> writer =
                (message, context, timestamp) -> {
                    var record = message.record;
                    if (message.isDuplicate) {
                        record.headers().add("reason", "duplicate".getBytes(StandardCharsets.UTF_8));
                    }
                    return new ProducerRecord<>(
                            message.isDuplicate ? dead : unique,
                            record.partition(),
                            record.timestamp(),
                            record.key(),
                            record.value(),
                            record.headers());
                };
        return KafkaSink.<Message>builder()
                .setBootstrapServers(arguments[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(arguments[1])
                .setProperty(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, "60000")
                .setProperty(ProducerConfig.LINGER_MS_CONFIG, "5")
                .setRecordSerializer(writer)
                .build();
    }

    /** A record and its verdict. It is passed on as an object, and never serialized. */
    static final class Message {
        final ConsumerRecord<byte[], byte[]> record;
        boolean isDuplicate;

        Message(ConsumerRecord<byte[], byte[]> record) {
            this.record = record;
        }

        String id() {
            return new String(
                    record.headers().lastHeader("_DUPL_ID").value(), StandardCharsets.ISO_8859_1);
        }
    }

    private static final class Reader implements KafkaRecordDeserializationSchema<Message> {
        private static final long serialVersionUID = 1;

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Message> out) {
            out.collect(new Message(record));
        }

        @Override
        public TypeInformation<Message> getProducedType() {
            return TypeInformation.of(Message.class);
        }
    }

    /** Rings in objects; a checkpoint writes all of them. */
    private static final class Ring extends RichMapFunction<Message, Message>
            implements CheckpointedFunction {
        private static final long serialVersionUID = 1;
        private final int size;
        private transient Map<Integer, Held> rings;
        private transient ListState<byte[]> stored;

        Ring(int size) {
            this.size = size;
        }

        @Override
        public Message map(Message message) {
            int partition = message.record.partition();
            message.isDuplicate =
                    !rings.computeIfAbsent(partition, each -> new Held(size)).add(message.id());
            return message;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            stored.clear();
            for (Map.Entry<Integer, Held> each : rings.entrySet()) {
                stored.add(each.getValue().written(each.getKey()));
            }
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            rings = new HashMap<>();
            stored =
                    context.getOperatorStateStore()
                            .getUnionListState(
                                    new ListStateDescriptor<>(
                                            "rings",
                                            PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
            for (byte[] each : stored.get()) {
                var in = new DataInputStream(new ByteArrayInputStream(each));
                Held held = new Held(size);
                rings.put(in.readInt(), held);
                for (int left = in.readInt(); left > 0; left--) {
                    held.add(in.readUTF());
                }
            }
        }
    }

    /** The last ids of one partition, oldest first in a circle. */
    private static final class Held {
        private final Map<String, Boolean> ids;
        private final String[] circle;
        private int next;

        Held(int size) {
            ids = new HashMap<>(2 * size);
            circle = new String[size];
        }

        boolean add(String id) {
            if (ids.putIfAbsent(id, Boolean.TRUE) != null) {
                return false;
            }
            if (circle[next] != null) {
                ids.remove(circle[next]);
            }
            circle[next] = id;
            next = (next + 1) % circle.length;
            return true;
        }

        byte[] written(int partition) throws IOException {
            var bytes = new ByteArrayOutputStream();
            var out = new DataOutputStream(bytes);
            out.writeInt(partition);
            out.writeInt(ids.size());
            for (int at = 0; at < circle.length; at++) {
                String id = circle[(next + at) % circle.length];
                if (id != null) {
                    out.writeUTF(id);
                }
            }
            return bytes.toByteArray();
        }
    }

    /** Rings in keyed state; a checkpoint writes what has changed. */
    private static final class KeyedRing extends RichMapFunction<Message, Message> {
        private static final long serialVersionUID = 1;
        private final int size;
        private transient MapState<String, Integer> ids;
        private transient MapState<Integer, String> circle;
        private transient ValueState<Integer> next;

        KeyedRing(int size) {
            this.size = size;
        }

        @Override
        public void open(Configuration parameters) {
            var context = getRuntimeContext();
            ids = context.getMapState(new MapStateDescriptor<>("ids", Types.STRING, Types.INT));
            circle = context.getMapState(new MapStateDescriptor<>("circle", Types.INT, Types.STRING));
            next = context.getState(new ValueStateDescriptor<>("next", Types.INT));
        }

        @Override
        public Message map(Message message) throws Exception {
            String id = message.id();
            if (ids.contains(id)) {
                message.isDuplicate = true;
                return message;
            }
            Integer told = next.value();
            int slot = told == null ? 0 : told;
            String oldest = circle.get(slot);
            if (oldest != null) {
                ids.remove(oldest);
            }
            ids.put(id, slot);
            circle.put(slot, id);
            next.update((slot + 1) % size);
            return message;
        }
    }
}
