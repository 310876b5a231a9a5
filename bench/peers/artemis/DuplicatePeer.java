import java.util.HashMap;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/**
 * Artemis with duplicate detection: durable messages into one queue and out of it again, each with
 * an id, a share of them copies. Prints the messages sent, received, and the seconds.
 *
 * <p>Arguments: folder, port, messages, bytes, share of duplicates, size of the id cache.
 */
public final class DuplicatePeer {
    private static final String QUEUE = "bench";
    private static final int DISTANCE = 1000;

    private DuplicatePeer() {}

    public static void main(String[] arguments) throws Exception {
        String url = "tcp://127.0.0.1:" + arguments[1];
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration(arguments[0], url, Integer.parseInt(arguments[5])));
        server.start();
        try (ServerLocator locator = ActiveMQClient.createServerLocator(url)) {
            locator.setBlockOnDurableSend(false);
            locator.setAckBatchSize(1 << 20);
            locator.setConfirmationWindowSize(1 << 20);
            try (ClientSessionFactory factory = locator.createSessionFactory()) {
                run(factory, arguments);
            }
        } finally {
            server.stop();
        }
    }

    private static Configuration configuration(String folder, String url, int size)
            throws Exception {
        return new ConfigurationImpl()
                .setPersistenceEnabled(true)
                .setJournalType(JournalType.NIO)
                .setJournalDirectory(folder + "/journal")
                .setBindingsDirectory(folder + "/bindings")
                .setPagingDirectory(folder + "/paging")
                .setLargeMessagesDirectory(folder + "/large")
                .setSecurityEnabled(false)
                .setIDCacheSize(size)
                .addAcceptorConfiguration("tcp", url);
    }

    private static void run(ClientSessionFactory factory, String[] arguments) throws Exception {
        long messages = Long.parseLong(arguments[2]);
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        double share = Double.parseDouble(arguments[4]);
        AtomicLong received = new AtomicLong();
        try (ClientSession out = factory.createSession(true, true);
                ClientSession in = factory.createSession(true, true)) {
            in.createQueue(QueueConfiguration.of(QUEUE).setRoutingType(RoutingType.ANYCAST));
            ClientConsumer consumer = in.createConsumer(QUEUE);
            consumer.setMessageHandler(
                    message -> {
                        acknowledge(message);
                        received.incrementAndGet();
                    });
            in.start();
            long begun = System.nanoTime();
            long unique = send(out, messages, body, share);
            while (received.get() < unique) {
                Thread.sleep(5);
            }
            double seconds = (System.nanoTime() - begun) / 1e9;
            System.out.printf("%d %d %.3f%n", messages, received.get(), seconds);
        }
    }

    private static void acknowledge(ClientMessage message) {
        try {
            message.acknowledge();
        } catch (ActiveMQException refused) {
            throw new IllegalStateException(refused);
        }
    }

    private static long send(ClientSession session, long messages, byte[] body, double share)
            throws Exception {
        Random chance = new Random(1);
        HashMap<Integer, String> recent = new HashMap<>();
        long unique = 0;
        try (ClientProducer producer = session.createProducer(QUEUE)) {
            for (long number = 0; number < messages; number++) {
                String id;
                if (unique > DISTANCE && chance.nextDouble() < share) {
                    id = recent.get(chance.nextInt(DISTANCE));
                } else {
                    id = new UUID(chance.nextLong(), chance.nextLong()).toString();
                    recent.put((int) (unique++ % DISTANCE), id);
                }
                ClientMessage message = session.createMessage(true);
                message.getBodyBuffer().writeBytes(body);
                message.putStringProperty(Message.HDR_DUPLICATE_DETECTION_ID.toString(), id);
                producer.send(message);
            }
        }
        return unique;
    }
}
