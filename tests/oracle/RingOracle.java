import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.activemq.artemis.api.core.Pair;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.persistence.impl.nullpm.NullStorageManager;
import org.apache.activemq.artemis.core.postoffice.DuplicateIDCache;
import org.apache.activemq.artemis.core.postoffice.impl.DuplicateIDCaches;
import org.apache.activemq.artemis.core.transaction.Transaction;
import org.apache.activemq.artemis.core.transaction.impl.TransactionImpl;

/**
 * Judges a trace with the genuine, persistent ring of Apache ActiveMQ Artemis.
 *
 * Reads operations from stdin and answers on stdout, integers big-endian:
 *
 *   'O' size           a new address           -> number of ids held (0)
 *   'R' size           a restart               -> number of ids held
 *   'C' n, n x (length, bytes)   a batch that commits      -> n bytes, 1 = duplicate
 *   'A' n, n x (length, bytes)   a batch that rolls back   -> n bytes, 1 = duplicate
 *
 * Ring, transactions and the trimming at a restart are Artemis' own classes. Ours is the journal
 * alone: records of committed ids in the order of writing, which is the order Artemis reads back.
 */
public final class RingOracle {

   private static final SimpleString ADDRESS = SimpleString.of("oracle");

   private Journal journal = new Journal(Map.of());
   private DuplicateIDCache cache;

   public static void main(String[] arguments) throws Exception {
      DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
      DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
      RingOracle oracle = new RingOracle();
      for (int operation = in.read(); operation >= 0; operation = in.read()) {
         int number = in.readInt();
         switch (operation) {
            case 'O' -> out.writeInt(oracle.open(number));
            case 'R' -> out.writeInt(oracle.restart(number));
            case 'C' -> out.write(oracle.commit(readIds(in, number)));
            case 'A' -> out.write(oracle.rollBack(readIds(in, number)));
            default -> throw new IOException("no such operation: " + operation);
         }
      }
      out.flush();
   }

   private int open(int size) throws Exception {
      journal = new Journal(Map.of());
      return restart(size);
   }

   private int restart(int size) throws Exception {
      cache = load(journal, size);
      return cache.getMap().size();
   }

   private byte[] commit(List<byte[]> ids) throws Exception {
      return send(cache, journal, ids);
   }

   /**
    * The verdicts come from a ring loaded from a copy of the journal, which is thrown away. The
    * live ring gets the same ids in one genuine transaction that rolls back, and must not change.
    */
   private byte[] rollBack(List<byte[]> ids) throws Exception {
      Journal copy = new Journal(journal.records);
      byte[] verdicts = send(load(copy, cache.getSize()), copy, ids);
      Transaction transaction = new TransactionImpl(journal);
      for (byte[] id : ids) {
         cache.addToCache(id, transaction, false);
      }
      transaction.rollback();
      return verdicts;
   }

   /** Each message in a transaction of its own, as the broker treats an ordinary send. */
   private static byte[] send(DuplicateIDCache cache, Journal journal, List<byte[]> ids)
      throws Exception {
      byte[] verdicts = new byte[ids.size()];
      for (int i = 0; i < verdicts.length; i++) {
         if (cache.contains(ids.get(i))) {
            verdicts[i] = 1;
            continue;
         }
         Transaction transaction = new TransactionImpl(journal);
         cache.addToCache(ids.get(i), transaction, true);
         transaction.commit();
      }
      return verdicts;
   }

   private static DuplicateIDCache load(Journal journal, int size) throws Exception {
      DuplicateIDCache cache = DuplicateIDCaches.persistent(ADDRESS, size, journal);
      List<Pair<byte[], Long>> stored = new ArrayList<>();
      journal.records.forEach((record, id) -> stored.add(new Pair<>(id, record)));
      cache.load(stored);
      return cache;
   }

   private static List<byte[]> readIds(DataInputStream in, int count) throws IOException {
      List<byte[]> ids = new ArrayList<>(count);
      for (int i = 0; i < count; i++) {
         ids.add(in.readNBytes(in.readInt()));
      }
      return ids;
   }

   /** Artemis' storage without a disk, made to keep id records; a transaction's join at commit. */
   private static final class Journal extends NullStorageManager {

      private final Map<Long, byte[]> records;
      private final Map<Long, List<Runnable>> open = new HashMap<>();

      private Journal(Map<Long, byte[]> records) {
         // Copies go on with higher record ids, as a journal that was read back does.
         super((int) records.keySet().stream().mapToLong(Long::longValue).max().orElse(0));
         this.records = new LinkedHashMap<>(records);
      }

      @Override
      public void storeDuplicateID(SimpleString address, byte[] id, long record) {
         records.put(record, id);
      }

      @Override
      public void storeDuplicateIDTransactional(
         long transaction, SimpleString address, byte[] id, long record) {
         later(transaction, () -> records.put(record, id));
      }

      @Override
      public void deleteDuplicateID(long record) {
         records.remove(record);
      }

      @Override
      public void deleteDuplicateIDTransactional(long transaction, long record) {
         later(transaction, () -> records.remove(record));
      }

      @Override
      public void commit(long transaction) {
         open.getOrDefault(transaction, List.of()).forEach(Runnable::run);
         open.remove(transaction);
      }

      @Override
      public void rollback(long transaction) {
         open.remove(transaction);
      }

      private void later(long transaction, Runnable change) {
         open.computeIfAbsent(transaction, key -> new ArrayList<>()).add(change);
      }
   }
}
