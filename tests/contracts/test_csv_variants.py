"""CSV files that are written in other ways, on the contract of formats."""

from __future__ import annotations

from tests.contracts.format_contract import FormatContract
from txtopo.formats import Csv
from txtopo.spouts.formats.csv import ranges, windows

SIZES = ((ranges, "BLOCK_BYTES"), (windows, "WINDOW_BYTES"))


class TestSpelledCsv(FormatContract):
    """No header line, columns by position, decimal commas, groups of digits, dates of another order."""

    format = Csv(
        header=False,
        columns=["s", "a", "", "c", "t", "d", "f", "h", "o"],
        delimiter=";",
        null_values=["", "-", "1.000"],
        decimal=",",
        grouping=".",
        date_format="%d.%m.%Y",
        timestamp_format="%d.%m.%y %H:%M%z",
        empty_is_null=True,
    )
    other = Csv(delimiter=";")
    fields = "a int not null, s string, c decimal(9,2), t timestamp, d date, f double, o boolean"
    scraps = (
        b"x;1;u;1.234,50;31.01.24 10:00Z;31.01.2024;1,5;;true\n",
        b"y;2.000;;-1.234.567,8;1.2.70 1:02+05:30;1.2.2024;1e3;;FALSE\r\n",
        b'"";3;"";"";"";"";"";"";""\n',
        b"-;4;;-;-;;-;;\n",
        b"x;1.000;;;;;;;\n",
        b'x;"1.000";;1.000;;;;;\n',
        b'x;"";;;;;;;\n',
        b"x;1;;1.5;;;;;\n",
        b"x;1;;1.23,4;;;;;\n",
        b"x;1;;1,234;;;;;\n",
        b"x;1;;;2024-01-31 10:00Z;;;;\n",
        b"x;1;;;;2024-01-31;;;\n",
        b"x;1;;;;31.02.2024;;;\n",
        b"x;1;;;; 29.2.2024 ;1.000,5;;\n",
        b"x;+1;;;;;;;\n",
        b"x;0x1F;;;;;nan;;\n",
        b"x;1;;;;;1.5;;\n",
        b"x;1\n",
        b"\n",
        b"last;3;;0,5;;;;;",
    )
    files = {
        "one record": b"x;1;;;;;;;",
        "byte order mark": b"\xef\xbb\xbfx;1;;;;;;;\n",
        "byte order mark twice": b"\xef\xbb\xbf\xef\xbb\xbfx;1;;;;;;;\n",
        "byte order mark alone": b"\xef\xbb\xbf",
        "blank lines first": b"\n\n\nx;1;;;;;;;\n",
        "CR": b"x;1;;;;;;;\ry;z;;;;;;;\r",
    }
    refused = {
        "header line": (b"s;a;x;c;t;d;f;h;o\nx;1;;;;;;;\n", "it is a header line: say header=True"),
        "JSON": (b'{"a": 1}\n', "it looks like JSON"),
        "gzip": (b"\x1f\x8b\x08" + bytes(9), "it is gzip"),
        "other delimiter": (b"x,1,,,,,,,\n", "is ',' its delimiter"),
    }
    wrong_fields = "a int, z string"
    sizes = SIZES


class TestMarkedCsv(FormatContract):
    """Another quote, an escape character and comments."""

    format = Csv(quote="'", escape="\\", comment="#", null_values=["", "\\N", "N"])
    other = Csv(delimiter=";")
    fields = "a int not null, s string, c decimal(5,2), y binary"
    head = b"# exported\n\ns,'a',x,c,y\n"
    scraps = (
        b"x,1,u,1.50,b\n",
        b"\\N,2,,N,\\N\r\n",
        b"\\\\N,2,,\\1.5,\\'\n",
        b"'it''s','3',,,'\\''\n",
        b"'a\\'b''c\\\\',4,,,\n",
        b'say "hi",5,,,"\n',
        b"a\\,b,6,\\\n\\\r\n,,\n",
        b"'two\nlines, #\n',7,,,\n",
        b"# it's a comment\n",
        b"#\r\n",
        b"#,'open\n",
        b" # is none,8,,,\n",
        b"'# nor this',9,,,\n",
        b"x,x,,,\n",
        b"x,\\x,,,\n",
        b"x,1,\\\\,1.505,\n",
        b"\xff\\,,1,,,\n",
        b"n\\\0l,1,,,\n",
        b"1,2\n",
        b"1\\,2\n",
        b"\n",
        b"\r",
        b"'open,1,,,\n",
        b"'closed'\\,1,,,\n",
        b"last,3,,,\\",
    )
    files = {
        "comments alone": b"# a\n#b",
        "comments with quotes": head + b"#,'open\nx,1,,,\n#,'\ny,2,'',,\n",
        "comment last": head + b"x,1,,,\n# a",
        "escaped line end last": head + b"x,1,,,\\\n",
        "escaped line ends last": head + b"x,1,,,\\\ny,2,,,\\\r\n",
        "never closed": head + b"x,1,,,\n'" + b"x\\',1,,,\n" * 9,
        "CR": b"#\rs,a,x,c,y\rx,1,,,\r#\rx,z,,,\\\ry\r",
    }
    refused = {"column missing": (b"# s,a,x,c,y\ns,x\n1,2\n", "column 'a' is missing")}
    sizes = SIZES


class TestUnquotedCsv(FormatContract):
    """As databases write it: tabs, no quotes, escapes."""

    format = Csv(delimiter="\t", quote=None, escape="\\", null_values=["\\N"])
    other = Csv(delimiter="\t", quote=None)
    fields = "a int not null, s string, c decimal(5,2)"
    head = b"s\ta\tc\n"
    scraps = (
        b"x\t1\t1.50\n",
        b"\t2\t\\N\n",
        b'"\t3\t\\N\n',
        b'"x"\t4\t\\N\r\n',
        b'a "b\\\tc"\t5\t"\n',
        b"\\N\t6\t1\\.5\n",
        b'""\t"7"\t\\N\n',
        b"\\\n\\\\\t8\t\\N\n",
        b"\xff\t9\t\\N\n",
        b"\t\\N\t\\N\n",
        b"1\t2\n",
        b"\n",
        b"last\t3\t1",
    )
    sizes = SIZES


class TestLatin1Csv(FormatContract):
    """A byte for each character, some of which are none."""

    format = Csv(delimiter=";", encoding="cp1252", null_values=["", "\u2013"])
    other = Csv(delimiter=";", encoding="cp437", null_values=["", "\u2013"])
    fields = "`Größe` int not null, s string, c decimal(5,2)"
    head = "s;Größe;c\n".encode("cp1252")
    scraps = (
        "Köln €;1;1,50\n".encode("cp1252"),
        "\u2013;2;\u2013\n".encode("cp1252"),
        "é\u00a0ÿ;3;1.5\r\n".encode("cp1252"),
        b"\xc3\xa9;4;\n",
        b"\x81;5;\n",
        b"\xc2\x81;5;\n",
        b"x;\xa05;\n",
        b"x;6;\x81\n",
        b"x;;\n",
        b"\x85;7;\n",
        b'"\xe4\n""\xf6""";8;\n',
        b'"\xfc;9;\n',
        b"1;2\n",
        b"\n",
        b"last;3;",
    )
    files = {"all bytes": head + bytes(byte for byte in range(1, 256) if byte not in b'\r\n;"') + b";1;\n"}
    refused = {
        "UTF-8": ("\ufeffs;Größe;c\n".encode(), "begins with the byte order mark of UTF-8"),
        "read as another": ("s;Größe;c\n".encode("cp437"), "column 'Größe' is missing"),
    }
    wrong_fields = "`Größe` int, s binary"
    sizes = SIZES


class TestWideCsv(FormatContract):
    """Several bytes for a character: its text is read from the start, in UTF-8."""

    format = Csv(delimiter=";", encoding="utf-16-le", comment="#", null_values=["", "\u2013"])
    other = Csv(delimiter=",", encoding="utf-16-be")
    fields = "`Gr\u00f6\u00dfe` int not null, s string, c decimal(5,2)"
    head = "\ufeff# \u010a\ns;Gr\u00f6\u00dfe;c\n".encode("utf-16-le")
    scraps = (
        *(
            text.encode("utf-16-le", "surrogatepass")
            for text in (
                "K\u00f6ln \u20ac;1;1.50\n",
                "\u2013;2;\u2013\r\n",
                "\U0001f600\u0a0d\u0d0a;3;\n",
                "\ud83d;4;\n",
                "x;5;\ude00\n",
                '"\u00e4\n""\u00f6""";6;\n',
                '"\u00fc;7;\n',
                "n\0l;8;\n",
                "0x1;0x1F;\n",
                "1;2\n",
                "\n",
                "#;9;\n",
                "last;3;",
            )
        ),
    )
    files = {
        "half a character": head + "x;1;1\nx".encode("utf-16-le") + b"\0",
        "no mark": head[2:] + "x;1;1\n".encode("utf-16-le"),
    }
    refused = {
        "UTF-8 mark": (b"\xef\xbb\xbfs;a\n", "byte order mark of UTF-8"),
        "other half first": ("\ufeffs;a\n".encode("utf-32-be"), "it is UTF-32, not UTF-16-LE"),
    }
    wrong_fields = "`Gr\u00f6\u00dfe` int, s binary"
    sizes = SIZES


class TestShiftJisCsv(FormatContract):
    """A second byte of a character may be the delimiter."""

    format = Csv(delimiter="|", encoding="shift_jis")
    fields = "a int not null, s string"
    head = "s|a\n".encode("shift_jis")
    scraps = (
        "\u30dd\u30bd|1\n".encode("shift_jis"),
        b"\x81|1|2\n",
        b"\x85\x20|3\n",
        b"\xff|4\n",
        b'"\x83|"|5\n',
        b"x|y\n",
        b"last|6",
    )
    sizes = SIZES
