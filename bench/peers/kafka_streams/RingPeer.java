import java.nio.ByteBuffer;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The same ring as ours on Kafka Streams: the last {@code size} ids of each partition, duplicates
 * to a dead-letter topic, exactly once, in RocksDB with a changelog.
 *
 * <p>Arguments: bootstrap servers, application id, input, output, dead letters, state folder, size.
 */
public final class RingPeer {
    private static final byte[] NEXT = new byte[0];

    private RingPeer() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 5);
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(arguments), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Topology topology(String[] arguments) {
        long size = Long.parseLong(arguments[6]);
        var bytes = Serdes.ByteArray();
        Topology topology = new Topology();
        topology.addSource("input", bytes.deserializer(), bytes.deserializer(), arguments[2]);
        topology.addProcessor("ring", () -> new Ring(size), "input");
        for (String store : new String[] {"numbers", "slots"}) {
            topology.addStateStore(
                    Stores.keyValueStoreBuilder(
                            Stores.persistentKeyValueStore(store), bytes, bytes),
                    "ring");
        }
        topology.addSink("unique", arguments[3], bytes.serializer(), bytes.serializer(), "ring");
        topology.addSink("dead", arguments[4], bytes.serializer(), bytes.serializer(), "ring");
        return topology;
    }

    /** Ids by their number, and for each slot of the circle the id that it holds. */
    private static final class Ring implements Processor<byte[], byte[], byte[], byte[]> {
        private final long size;
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<byte[], byte[]> numbers;
        private KeyValueStore<byte[], byte[]> slots;

        Ring(long size) {
            this.size = size;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            this.context = context;
            this.numbers = context.getStateStore("numbers");
            this.slots = context.getStateStore("slots");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            Header header = record.headers().lastHeader("_DUPL_ID");
            byte[] id = header.value();
            if (numbers.get(id) != null) {
                record.headers().add("reason", "duplicate".getBytes());
                context.forward(record, "dead");
                return;
            }
            byte[] told = slots.get(NEXT);
            long next = told == null ? 0 : ByteBuffer.wrap(told).getLong();
            byte[] slot = bytesOf(next % size);
            byte[] oldest = slots.get(slot);
            if (oldest != null) {
                numbers.delete(oldest);
            }
            slots.put(slot, id);
            numbers.put(id, bytesOf(next));
            slots.put(NEXT, bytesOf(next + 1));
            context.forward(record, "unique");
        }

        private static byte[] bytesOf(long number) {
            return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
        }
    }
}
