import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.activemq.ActiveMQMessageAudit;
import org.apache.activemq.command.MessageId;

/**
 * Judges a trace with the genuine message audit of Apache ActiveMQ.
 *
 * <p>In: depth, producers and count as ints, then for each message its producer as a byte and its
 * number as a long; again until the end. Out: a byte for each message, 1 for a duplicate.
 */
public final class AuditOracle {
  public static void main(String[] args) throws IOException {
    DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
    DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
    for (in.mark(1); in.read() >= 0; in.mark(1)) {
      in.reset();
      ActiveMQMessageAudit audit = new ActiveMQMessageAudit(in.readInt(), in.readInt());
      for (int left = in.readInt(); left > 0; left--) {
        MessageId id = new MessageId("ID:host-1-1-1:1:1:" + in.readUnsignedByte(), in.readLong());
        out.writeByte(audit.isDuplicate(id) ? 1 : 0);
      }
    }
    out.flush();
  }
}
