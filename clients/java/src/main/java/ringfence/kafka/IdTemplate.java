package ringfence.kafka;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The template of an id, as a Ringfence route has it: text and {@code {fields}}, each with filters
 * and alternatives. Of several fields each but the last is escaped, so that two messages have one
 * id only if they have the same fields (docs/adr/0029).
 */
final class IdTemplate implements Function<ProducerRecord<?, ?>, byte[]> {
    private static final Pattern PLACEHOLDER = Pattern.compile("\\{([^{}]*)\\}");
    private static final String FILTERS = "(?:(?:lower|trim):)*";
    /** How each field of a route begins, also those that are refused here. */
    private static final String BEGIN = FILTERS + "(?:(?:key|sha256:value)(?=\\}| or |\\z)"
        + "|(?:header|json|key-json|schema|key-schema|sha256-json):)";
    private static final Pattern OR = Pattern.compile(" or (?=" + BEGIN + ")");
    /** What Python's {@code str.strip} takes away. */
    private static final String SPACES = "[\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a"
        + "\u2028\u2029\u202f\u205f\u3000]+";
    private static final Pattern ENDS = Pattern.compile("\\A" + SPACES + "|" + SPACES + "\\z");

    private static final char SIGMA = '\u03a3';
    private static final String BETWEEN_LETTERS = "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024"
        + "\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";

    private final List<Function<ProducerRecord<?, ?>, byte[]>> pieces = new ArrayList<>();

    /** IllegalArgumentException says what is wrong with the template. */
    IdTemplate(String template) {
        var text = template.replaceFirst("\\A(\\{plain\\})?(\\{escaped\\})?", "");
        var literals = new ArrayList<String>();
        var names = new ArrayList<String>();
        int end = 0;
        for (var found = PLACEHOLDER.matcher(text); found.find(); end = found.end()) {
            literals.add(text.substring(end, found.start()));
            names.add(found.group(1));
        }
        literals.add(text.substring(end));
        if (names.isEmpty() || literals.stream().anyMatch(each -> each.matches("(?s).*[{}].*"))) {
            throw new IllegalArgumentException("it names no field, or has a brace too many");
        }
        var isEscaped = !template.startsWith("{plain}") && new HashSet<>(names).size() > 1;
        add(literals.get(0));
        for (int each = 0; each < names.size(); each++) {
            var field = firstOf(names.get(each));
            var after = literals.get(each + 1);
            if (isEscaped && each < names.size() - 1) {
                var ending = after.isEmpty() || after.startsWith("\\") ? "|" + after : after;
                var stop = ending.substring(0, ending.offsetByCodePoints(0, 1));
                pieces.add(record -> escaped(field.apply(record), stop));
                add(ending);
            } else {
                pieces.add(field);
                add(after);
            }
        }
    }

    /** Returns the id of a message; IllegalArgumentException says why it has none. */
    @Override
    public byte[] apply(ProducerRecord<?, ?> record) {
        var id = new ByteArrayOutputStream();
        pieces.forEach(each -> id.writeBytes(each.apply(record)));
        return id.toByteArray();
    }

    private void add(String literal) {
        var bytes = Ids.encoded(literal);
        pieces.add(record -> bytes);
    }

    private static Function<ProducerRecord<?, ?>, byte[]> firstOf(String placeholder) {
        var choices = OR.splitAsStream(placeholder).map(IdTemplate::filtered).toList();
        return choices.size() == 1 ? choices.get(0) : record -> {
            var causes = new ArrayList<String>();
            for (var choice : choices) {
                try {
                    var found = choice.apply(record);
                    if (found.length > 0) {
                        return found;
                    }
                    causes.add("a field is empty");
                } catch (IllegalArgumentException error) {
                    causes.add(error.getMessage());
                }
            }
            throw new IllegalArgumentException(String.join("; ", causes));
        };
    }

    private static Function<ProducerRecord<?, ?>, byte[]> filtered(String name) {
        if (name.startsWith("lower:")) {
            var inner = filtered(name.substring("lower:".length()));
            return record -> changed(inner.apply(record), IdTemplate::lower);
        }
        if (name.startsWith("trim:")) {
            var inner = filtered(name.substring("trim:".length()));
            return record ->
                changed(inner.apply(record), text -> ENDS.matcher(text).replaceAll(""));
        }
        var field = MessageField.named(name);
        if (field == null) {
            throw new IllegalArgumentException("a producer cannot read {" + name + "}: use {key},"
                + " {header:NAME}, {json:/POINTER} or {key-json:/POINTER}, or leave the id to the"
                + " route, whose id may be any template");
        }
        return field;
    }

    /** Returns UTF-8 text changed by a filter, and other bytes as they are. */
    private static byte[] changed(byte[] field, Function<String, String> filter) {
        String text;
        try {
            text = Ids.decoded(field);
        } catch (IllegalArgumentException isNoText) {
            return field;
        }
        return Ids.encoded(filter.apply(text));
    }

    /** Returns small letters. Java takes some ends for ends of words that Unicode does not. */
    private static String lower(String text) {
        int[] letters = text.codePoints().toArray();
        for (int at = 0; at < letters.length; at++) {
            if (letters[at] == SIGMA) {
                var isLast = isBesideLetter(letters, at, -1) && !isBesideLetter(letters, at, 1);
                letters[at] = isLast ? '\u03c2' : '\u03c3';
            }
        }
        return new String(letters, 0, letters.length).toLowerCase(Locale.ROOT);
    }

    /** Whether the next character that Unicode does not ignore there is a cased letter. */
    private static boolean isBesideLetter(int[] letters, int from, int step) {
        int at = from + step;
        while (at >= 0 && at < letters.length && isIgnored(letters[at])) {
            at += step;
        }
        return at >= 0 && at < letters.length && (Character.isLowerCase(letters[at])
            || Character.isUpperCase(letters[at]) || Character.isTitleCase(letters[at]));
    }

    /** Whether it is Case_Ignorable in Unicode. */
    private static boolean isIgnored(int letter) {
        return switch (Character.getType(letter)) {
            case Character.NON_SPACING_MARK, Character.ENCLOSING_MARK, Character.FORMAT,
                Character.MODIFIER_LETTER, Character.MODIFIER_SYMBOL -> true;
            default -> BETWEEN_LETTERS.indexOf(letter) >= 0;
        };
    }

    /** Returns a field with a backslash before each backslash and each stop, whatever its bytes. */
    private static byte[] escaped(byte[] field, String stop) {
        var end = new String(Ids.encoded(stop), ISO_8859_1);
        return new String(field, ISO_8859_1)
            .replace("\\", "\\\\").replace(end, "\\" + end).getBytes(ISO_8859_1);
    }
}
