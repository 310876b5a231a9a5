package ringfence.kafka;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A JSON pointer (RFC 6901) and what it names in a document. As in the templates of a Ringfence
 * route, the text of a member is the text of a string, or a number or boolean as it stands there.
 */
final class JsonPointer {
    /** Levels of objects and arrays; a route has the same limit (service/ringfence_service/schemas/limits.py). */
    private static final int DEPTH_MAX = 500;
    private static final Pattern INDEX = Pattern.compile("0|[1-9][0-9]{0,8}");
    private static final Pattern LITERAL = Pattern.compile(
        "true|false|null|-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");

    private final String pointer;
    private final List<String> names;

    /** IllegalArgumentException unless the pointer is empty or begins with a slash. */
    JsonPointer(String pointer) {
        if (!pointer.matches("(/([^~/]|~[01])*)*")) {
            throw new IllegalArgumentException(
                "a JSON pointer is empty or begins with /, and writes ~ as ~0: " + pointer);
        }
        this.pointer = pointer;
        names = Arrays.stream(pointer.split("/", -1))
            .skip(1)
            .map(name -> name.replace("~1", "/").replace("~0", "~"))
            .toList();
    }

    /** Returns the text of the member; IllegalArgumentException says why there is none. */
    String textIn(String document) {
        Object found = new Parser(document).document();
        for (var name : names) {
            if (found instanceof Map<?, ?> object) {
                found = object.get(name);
            } else if (found instanceof List<?> array && INDEX.matcher(name).matches()) {
                int index = Integer.parseInt(name);
                found = index < array.size() ? array.get(index) : null;
            } else {
                found = null;
            }
        }
        if (found instanceof String text) {
            return text;
        }
        var kind = found == null ? "nothing" : found instanceof Map ? "an object" : "an array";
        throw new IllegalArgumentException("the JSON has " + kind + " at '" + pointer + "'");
    }

    /** Reads a document into maps, lists, and strings for all else; null is null. */
    private static final class Parser {
        private final String text;
        private int at;

        Parser(String text) {
            this.text = text;
        }

        Object document() {
            var value = value(0);
            next();
            if (at < text.length()) {
                throw wrong();
            }
            return value;
        }

        private Object value(int depth) {
            char first = next();
            if (depth == DEPTH_MAX && (first == '{' || first == '[')) {
                throw new IllegalArgumentException(
                    "the JSON is nested deeper than " + DEPTH_MAX + " levels");
            }
            return switch (first) {
                case '{' -> object(depth);
                case '[' -> array(depth);
                case '"' -> string();
                default -> literal();
            };
        }

        private Map<String, Object> object(int depth) {
            var members = new HashMap<String, Object>();
            for (at++; next() != '}'; separator('}')) {
                if (next() != '"') {
                    throw wrong();
                }
                var name = string();
                if (next() != ':') {
                    throw wrong();
                }
                at++;
                members.put(name, value(depth + 1));
            }
            at++;
            return members;
        }

        private List<Object> array(int depth) {
            var items = new ArrayList<Object>();
            for (at++; next() != ']'; separator(']')) {
                items.add(value(depth + 1));
            }
            at++;
            return items;
        }

        /** Reads a comma, which something has to follow, unless the end is next. */
        private void separator(char end) {
            if (next() == ',') {
                at++;
                if (next() != end) {
                    return;
                }
            } else if (next() == end) {
                return;
            }
            throw wrong();
        }

        private String string() {
            var read = new StringBuilder();
            for (at++; current() != '"'; at++) {
                if (current() < ' ') {
                    throw wrong();
                }
                read.append(current() == '\\' ? escaped() : current());
            }
            at++;
            return read.toString();
        }

        private char escaped() {
            at++;
            if (current() == 'u' && at + 4 < text.length()) {
                var digits = text.substring(at + 1, at + 5);
                if (digits.matches("[0-9a-fA-F]{4}")) {
                    at += 4;
                    return (char) Integer.parseInt(digits, 16);
                }
            }
            int known = "\"\\/bfnrt".indexOf(current());
            if (known < 0) {
                throw wrong();
            }
            return "\"\\/\b\f\n\r\t".charAt(known);
        }

        private String literal() {
            var matcher = LITERAL.matcher(text).region(at, text.length());
            if (!matcher.lookingAt()) {
                throw wrong();
            }
            at = matcher.end();
            return matcher.group().equals("null") ? null : matcher.group();
        }

        /** Goes to the next character that is no space and returns it; 0 at the end. */
        private char next() {
            while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            return current();
        }

        private char current() {
            return at < text.length() ? text.charAt(at) : 0;
        }

        private IllegalArgumentException wrong() {
            return new IllegalArgumentException("it is not JSON from character " + at + " on");
        }
    }
}
