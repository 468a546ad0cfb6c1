//! The commands as clients see them. The replies are RedisJSON's.

use crate::exec::testing::{Client, check};
use crate::resp::Value;

const EVENT: &str = r#"{"name":"Gig","sections":{"A-1":{"stats":{"available":100,"price":9.5}},"A-2":{"stats":{"available":3}}},"tags":["a","b"],"open":true,"none":null}"#;

fn set(client: &mut Client, key: &str, text: &str) {
    let reply = client.args(&[b"JSON.SET", key.as_bytes(), b"$", text.as_bytes()]);
    assert_eq!(reply, Value::Simple("OK".into()), "{text}");
}

/// A path of a few bytes multiplied what it visits by each segment, and never came back.
#[test]
fn paths_that_visit_too_much_end() {
    let mut client = Client::new();
    set(
        &mut client,
        "d",
        &format!("{}1{}", "[".repeat(100), "]".repeat(100)),
    );
    let numbers: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    set(&mut client, "n", &format!("[{}]", numbers.join(",")));
    let text = "ERR the path visits too many values";
    for line in [
        "json.get d $..*..*..*..*..*..*..*..*..x",
        "json.numincrby d $..*..*..*..*..*..* 1",
        "json.get n $[?(@in$)]",
    ] {
        assert_eq!(client.run(line), Value::Error(text.into()), "{line}");
    }
    check(
        &mut client,
        &[("json.get n $..*[5]", "[]"), ("json.type d $", "[array]")],
    );
}

#[test]
fn values_at_paths() {
    let mut client = Client::new();
    set(&mut client, "e", EVENT);
    check(
        &mut client,
        &[
            ("json.get e", EVENT),
            ("json.get e $", &format!("[{EVENT}]")),
            ("json.get e .", EVENT),
            ("json.get e $.sections['A-1'].stats.available", "[100]"),
            ("json.get e .sections['A-1'].stats.available", "100"),
            ("json.get e sections['A-1'].stats.price", "9.5"),
            ("json.get e $..available", "[100,3]"),
            (
                "json.get e $.tags[-1] $.open",
                r#"{"$.tags[-1]":["b"],"$.open":[true]}"#,
            ),
            (
                "json.get e .tags[0] .open",
                r#"{".tags[0]":"a",".open":true}"#,
            ),
            (
                "json.get e $.sections[?(@.stats.available<50)].stats",
                r#"[{"available":3}]"#,
            ),
            ("json.get e $.nothing", "[]"),
            ("json.get e .nothing", "-ERR Path does not exist"),
            ("json.get none $", "nil"),
            ("json.type e $.*", "[string object array boolean null]"),
            ("json.type e .sections", "object"),
            ("json.type e .nothing", "nil"),
            ("json.mget e none $.name", r#"[["Gig"] nil]"#),
            ("json.strlen e $.*", "[3 nil nil nil nil]"),
            ("json.strlen e .name", "3"),
            ("json.arrlen e .tags", "2"),
            (
                "json.arrlen e .name",
                "-ERR Path does not exist or not an array",
            ),
            ("json.objlen e .sections", "2"),
            (
                "json.objlen e .name",
                "-WRONGTYPE wrong type of path value - expected object",
            ),
            ("json.objkeys e $.sections", "[[A-1 A-2]]"),
            (
                "json.arrindex e $.tags nope",
                "-ERR expected ident at line 1 column 2",
            ),
            ("type e", "ReJSON-RL"),
            ("object encoding e", "raw"),
            (
                "json.get e $.sections['A-1",
                "-Error occurred at position 16, expected one of the following: the end of a string",
            ),
            ("set s x", "OK"),
            ("json.get s $", "-Existing key has wrong Redis type"),
            ("json.mget s e $.open", "[nil [true]]"),
        ],
    );
    client.check();
}

#[test]
fn the_text_keeps_order_and_forms() {
    let mut client = Client::new();
    let text =
        r#"{"z":1,"a":1.0,"m":[1e20,-0.5,18446744073709551615,"é\u0001\n\"\\"],"e":{},"f":[]}"#;
    set(&mut client, "k", text);
    check(&mut client, &[("json.get k", text)]);
    let args: [&[u8]; 9] = [
        b"json.get",
        b"k",
        b"INDENT",
        b"\t",
        b"NEWLINE",
        b"\n",
        b"SPACE",
        b" ",
        b"$.e",
    ];
    assert_eq!(client.args(&args), Value::Bulk(b"[\n\t{}\n]".to_vec()));
    set(&mut client, "k", r#"{"a":[1,{"b":2}]}"#);
    let args: [&[u8]; 8] = [
        b"json.get",
        b"k",
        b"SPACE",
        b"_",
        b"INDENT",
        b"-",
        b"NEWLINE",
        b"/",
    ];
    let text = br#"{/-"a":_[/--1,/--{/---"b":_2/--}/-]/}"#;
    assert_eq!(client.args(&args), Value::Bulk(text.to_vec()));
}

#[test]
fn values_are_set_and_removed() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            (
                "json.set k $.a 1",
                "-ERR new objects must be created at the root",
            ),
            ("json.set k $ {} xx", "nil"),
            ("json.set k $ {} nx", "OK"),
            ("json.set k $ {} nx", "nil"),
            ("json.set k $.a {\"b\":1}", "OK"),
            ("json.set k $.a.b 2 nx", "nil"),
            ("json.set k $.a.c 3 xx", "nil"),
            ("json.set k $.a.c [1,2,3]", "OK"),
            ("json.set k $.a.c[5] 1", "-ERR array index out of range"),
            ("json.set k $.x.y 1", "nil"),
            ("json.set k $..x 1", "-Err wrong static path"),
            ("json.set k $.a nope", "-expected ident at line 1 column 2"),
            ("json.set k $.a 1 what", "-ERR syntax error"),
            ("json.get k", r#"{"a":{"b":1,"c":[1,2,3]}}"#),
            ("json.set k $.a.* 0", "OK"),
            ("json.get k", r#"{"a":{"b":0,"c":0}}"#),
            (
                "json.merge k $ {\"a\":{\"b\":null,\"d\":{\"e\":null,\"f\":1}}}",
                "OK",
            ),
            ("json.get k", r#"{"a":{"c":0,"d":{"f":1}}}"#),
            ("json.merge k $.a.d 5", "OK"),
            ("json.merge k $.n {\"x\":1}", "OK"),
            ("json.get k", r#"{"a":{"c":0,"d":5},"n":{"x":1}}"#),
            ("json.mset k $.a 1 l $ [] k $.q 2", "OK"),
            (
                "json.mset m $.a 1",
                "-ERR new objects must be created at the root",
            ),
            ("json.get k", r#"{"a":1,"n":{"x":1},"q":2}"#),
            ("json.del k $..x", "1"),
            ("json.forget k $.a", "1"),
            ("json.del k $.nothing", "0"),
            ("json.get k", r#"{"n":{},"q":2}"#),
            ("json.del k $.*", "2"),
            ("exists k", "0"),
            ("json.del l", "1"),
            ("exists l", "0"),
            ("json.del l", "0"),
        ],
    );
    client.check();
}

#[test]
fn numbers_strings_and_booleans() {
    let mut client = Client::new();
    set(
        &mut client,
        "k",
        r#"{"i":5,"f":1.5,"s":"x","b":true,"n":{"i":7}}"#,
    );
    check(
        &mut client,
        &[
            ("json.numincrby k $..i 2", "[7,9]"),
            ("json.numincrby k $.* 1", "[8,2.5,null,null,null]"),
            ("json.numincrby k .i -10", "-2"),
            ("json.numincrby k .i 0.5", "-1.5"),
            ("json.nummultby k $.n.i 3", "[27]"),
            ("json.numpowby k $.n.i 2", "[729]"),
            (
                "json.numincrby k $.n.i 9223372036854775807",
                "-ERR numeric overflow",
            ),
            (
                "json.numincrby k .s 1",
                "-ERR Path does not exist or does not contains a number",
            ),
            (
                "json.numincrby k .i nope",
                "-ERR expected ident at line 1 column 2",
            ),
            (
                "json.numincrby none $ 1",
                "-ERR could not perform this operation on a key that doesn't exist",
            ),
            ("json.toggle k $.b", "[0]"),
            ("json.toggle k .b", "true"),
            ("json.toggle k .s", "-ERR Path does not exist or not a bool"),
            (
                "json.get k",
                r#"{"i":-1.5,"f":2.5,"s":"x","b":true,"n":{"i":729}}"#,
            ),
            ("json.clear k $.*", "3"),
            ("json.get k", r#"{"i":0,"f":0,"s":"x","b":true,"n":{}}"#),
            ("json.clear k", "1"),
            ("json.get k", "{}"),
        ],
    );
    set(&mut client, "k", r#"["x",1]"#);
    for (path, text, expected) in [
        (&b"$.*"[..], &b"\"yz\""[..], "[3 nil]"),
        (b"[0]", b"\"\"", "3"),
        (b"[1]", b"\"\"", "-ERR Path does not exist or not a string"),
        (
            b"[0]",
            b"1",
            "-WRONGTYPE wrong type of path value - expected string",
        ),
    ] {
        let reply = client.args(&[b"JSON.STRAPPEND", b"k", path, text]);
        assert_eq!(crate::exec::testing::shown(&reply), expected);
    }
    client.check();
}

#[test]
fn arrays() {
    let mut client = Client::new();
    set(&mut client, "k", r#"{"a":[1,2,3],"n":{"a":[]},"s":1}"#);
    check(
        &mut client,
        &[
            ("json.arrappend k $..a 4 [5]", "[5 2]"),
            (
                "json.arrappend k .s 4",
                "-ERR Path does not exist or not an array",
            ),
            ("json.arrinsert k $.a -1 0", "[6]"),
            ("json.arrinsert k $.a 9 0", "-ERR index out of bounds"),
            ("json.get k .a", "[1,2,3,4,0,[5]]"),
            ("json.arrindex k $.a 3", "[2]"),
            ("json.arrindex k $.a [5]", "[5]"),
            ("json.arrindex k $.a 1 1", "[-1]"),
            (
                "json.arrindex k .s 1",
                "-WRONGTYPE wrong type of path value - expected array",
            ),
            ("json.arrpop k $..a", "[[5] [5]]"),
            ("json.arrpop k $.s", "[nil]"),
            ("json.arrpop k .a 0", "1"),
            ("json.arrpop k .a -100", "2"),
            ("json.arrtrim k $.a 1 1", "[1]"),
            ("json.get k .a", "[4]"),
            ("json.arrtrim k .a 5 9", "0"),
            ("json.arrpop k .a", "nil"),
            ("json.resp k", "[{ a [[] n [{ a [[ 4]] s 1]"),
            (
                "json.debug help",
                "[MEMORY <key> [path] - reports memory usage HELP                - this message]",
            ),
            ("json.debug fields k", "6"),
        ],
    );
    client.check();
}

#[test]
fn filters() {
    let mut client = Client::new();
    set(
        &mut client,
        "k",
        r#"[{"a":1,"s":"one"},{"a":2,"s":"two","l":[1,2]},{"a":2.0},{"b":null}]"#,
    );
    for (path, expected) in [
        ("$[?(@.a==2)].a", "[2,2.0]"),
        ("$[?(@.a>1 && @.s)].s", r#"["two"]"#),
        ("$[?(@.s=='one' || @.s==\"two\")].a", "[1,2]"),
        ("$[?(@.s=~'^t')].s", r#"["two"]"#),
        ("$[?(!@.a)]", r#"[{"b":null}]"#),
        ("$[?(@.b==null)]", r#"[{"b":null}]"#),
        ("$[?(@.a==$[0].a)].s", r#"["one"]"#),
        ("$[?(@.l==[1,2])].s", r#"["two"]"#),
        ("$[?(length(@.s)==3)].a", "[1,2]"),
        ("$[?(@.a + 1 > 2)].a", "[2,2.0]"),
        ("$[?(@.s in ['two','three'])].a", "[2]"),
        ("$[?((@.a==1 || @.a==2) && @.l)].s", r#"["two"]"#),
        ("$[0,-1].*", r#"[1,"one",null]"#),
        ("$[1:3].a", "[2,2.0]"),
        ("$[::2].a", "[1,2.0]"),
        ("$..l[*]", "[1,2]"),
        ("$[?@.a!=1].a", "[2,2.0]"),
        ("$.*['a','s']", r#"[1,"one",2,"two",2.0]"#),
    ] {
        let reply = client.args(&[b"JSON.GET", b"k", path.as_bytes()]);
        assert_eq!(crate::exec::testing::shown(&reply), expected, "{path}");
    }
    for path in [
        "$[",
        "$[?",
        "$[?(@.a==)]",
        "$.a.",
        "$[1:2:0]",
        "$['a]",
        "$..",
        "$[?((((@.a]",
        "$x[",
    ] {
        let reply = client.args(&[b"JSON.GET", b"k", path.as_bytes()]);
        assert!(reply.as_error().is_some(), "{path}: {reply:?}");
    }
    let deep = format!("$[?{}", "(".repeat(100_000));
    assert!(
        client
            .args(&[b"JSON.GET", b"k", deep.as_bytes()])
            .as_error()
            .is_some()
    );
}

#[test]
fn what_replicas_get() {
    let mut client = Client::new();
    set(&mut client, "k", r#"{"a":[1]}"#);
    let before = client.logged().len();
    check(
        &mut client,
        &[
            ("json.arrappend k $.a 2", "[2]"),
            ("json.del k $.nothing", "0"),
            ("json.numincrby k $.a[0] 1", "[2]"),
        ],
    );
    assert_eq!(
        client.logged()[before..],
        ["json.arrappend k $.a 2", "json.numincrby k $.a[0] 1"]
    );
}

#[test]
fn depth_is_bounded_over_the_whole_document() {
    let mut client = Client::new();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    set(&mut client, "k", &nested(127));
    let reply = client.args(&[b"JSON.SET", b"k", b"$", nested(128).as_bytes()]);
    assert!(reply.as_error().is_some());
    set(&mut client, "k", r#"{"a":[]}"#);
    let deep = nested(126);
    let reply = client.args(&[b"JSON.ARRAPPEND", b"k", b"$.a", deep.as_bytes()]);
    assert_eq!(reply.as_error(), Some("ERR recursion limit exceeded"));
    let reply = client.args(&[b"JSON.SET", b"k", b"$.b", nested(127).as_bytes()]);
    assert_eq!(reply, Value::Null);
    check(&mut client, &[("json.get k", r#"{"a":[]}"#)]);
}

#[test]
fn values_of_redisjson_are_restored() {
    let mut client = Client::new();
    set(&mut client, "k", EVENT);
    let dump = client.args(&[b"DUMP", b"k"]);
    let payload = dump.as_bytes().unwrap().to_vec();
    assert!(payload.starts_with(b"\x07\x81"));
    let reply = client.args(&[b"RESTORE", b"copy", b"0", &payload]);
    assert_eq!(reply, Value::Simple("OK".into()));
    check(
        &mut client,
        &[
            ("json.get copy", EVENT),
            ("copy k other", "1"),
            ("json.get other", EVENT),
        ],
    );
    assert_eq!(client.digest(b"k"), client.digest(b"copy"));
    client.check();
}

/// What RedisJSON of August 2026 replies.
#[test]
fn paths_that_calculate() {
    let mut client = Client::new();
    set(
        &mut client,
        "k",
        r#"{"a":3,"b":[1,2,2.5],"s":"héy","o":{"x":1,"y":[1,2]},"e":[],"big":9223372036854775807,"w":["a","b"]}"#,
    );
    for (path, expected) in [
        ("$.a + 1", "[4]"),
        ("$.a - 1.5", "[1.5]"),
        ("$.a * $.b[1]", "[6]"),
        ("$.a / 2", "[1.5]"),
        ("$.a % 2", "[1]"),
        ("$.a / 0", "[]"),
        ("$.a % 0", "[]"),
        ("$.s + 1", "[]"),
        ("$.b + 1", "[]"),
        ("$.b[*] + 1", "[]"),
        ("$.big + 1", "[9.223372036854776e18]"),
        ("-$.a", "[-3]"),
        ("- $.a", "[-3]"),
        ("+$.a", "[3]"),
        ("($.a + 1) * 2", "[8]"),
        ("$.a + 1 * 2", "[5]"),
        ("($.a)", "[3]"),
        ("($..x)", "[1]"),
        ("(1)", "[1]"),
        ("length($.s)", "[3]"),
        ("length ( $.b )", "[3]"),
        ("$.s.length()", "[3]"),
        ("$.o.length()", "[2]"),
        ("$.a.length()", "[]"),
        ("count($.b[*])", "[3]"),
        ("$.none.count()", "[0]"),
        ("value($.a)", "[3]"),
        ("$.b[*].value()", "[]"),
        ("$.b.sum()", "[5.5]"),
        ("$.b.min()", "[1.0]"),
        ("$.b.max()", "[2.5]"),
        ("$.b.avg() * 2", "[3.6666666666666665]"),
        ("$.o.y.stddev()", "[0.5]"),
        ("$.w.sum()", "[]"),
        ("$.e.sum()", "[]"),
        ("$.b.first()", "[1]"),
        ("$.b.last()", "[2.5]"),
        ("$.b.index(1)", "[2]"),
        ("$.b.index(-1.9)", "[2.5]"),
        ("$.b.index(3)", "[]"),
        ("$.b.index()", "[]"),
        ("$.b[2].ceiling()", "[3]"),
        ("$.b[2].floor()", "[2]"),
        ("abs($.none)", "[]"),
        ("$.o.keys()", r#"["x","y"]"#),
        ("$.o~", r#"["x","y"]"#),
        ("$~", r#"["a","b","s","o","e","big","w"]"#),
        ("$.b~", "[]"),
        ("$.o.keys().count()", "[2]"),
        ("$.b.append(9)", "[1,2,2.5,9]"),
        ("$.a.append($.b)", "[3,[1,2,2.5]]"),
        ("$.none.append(1)", "[1]"),
        ("$.a.append($.none)", "[]"),
        ("$.a.append($.b[*])", "[3,[1,2,2.5]]"),
        ("concat($.s, \"!\", \"?\")", r#"["héy!?"]"#),
        ("concat($.a)", "[]"),
        ("$.s.match(\"h.*\")", "[true]"),
        ("$.s.match(\"h\")", "[false]"),
        ("search($.s, \"y$\")", "[true]"),
        ("nosuch($.a)", "[]"),
        ("$.b[?(@) + 1 > 2.5]", "[2,2.5]"),
        ("$.w[?@ == $.o.y[1]]", "[]"),
        ("$.o[?@ == $.a / 3]", "[1]"),
        ("$.o[?@ == $.b[0]]", "[1]"),
        ("$.b[?-@ < -1]", "[2,2.5]"),
        ("$.w[?concat(@, \"x\") == \"bx\"]", r#"["b"]"#),
        ("$.b[?@ in $.o.y]", "[1,2]"),
        ("$[?@.keys()].x", "[1]"),
        ("$[?@ == [1,2,2.5]]", "[[1,2,2.5]]"),
        ("$[?index([1,3], 1) == 3]", "[]"),
        // A legacy path becomes one that calculates.
        ("a + 1", "[4]"),
    ] {
        let reply = client.args(&[b"JSON.GET", b"k", path.as_bytes()]);
        let shown = crate::exec::testing::shown(&reply);
        assert_eq!(shown, expected, "{path}");
    }
    let read_only = "-ERR computed/projection expressions are only supported by \
                     JSON.GET/JSON.MGET/JSON.RESP";
    for line in [
        "JSON.SET k $.a+1 1",
        "JSON.SET k $.a~ 1",
        "JSON.SET k $.a~ 1 NX",
        "JSON.DEL k $.a~",
        "JSON.NUMINCRBY k $.a~ 1",
        "JSON.TYPE k $.a~",
        "JSON.MSET k $.a~ 1",
        "JSON.MERGE k $.a~ 1",
        "JSON.CLEAR k $.a~",
        "JSON.ARRLEN k $.a~",
        "JSON.DEBUG MEMORY k $.a~",
    ] {
        let expected = match line {
            // `+` is a letter of names.
            "JSON.SET k $.a+1 1" => "OK",
            _ => read_only,
        };
        check(&mut client, &[(line, expected)]);
    }
    check(
        &mut client,
        &[
            ("json.mget k none $.w.append(1)", r#"[["a","b",1] nil]"#),
            ("json.resp k $.o~", "[x y]"),
            ("json.get k $.a~ .a", r#"{"$.a~":[],".a":[3]}"#),
            ("json.get k $[ $.a", r#"{"$.a":[3]}"#),
            ("json.mget k $[", "[nil]"),
        ],
    );
    client.check();
}

#[test]
fn arrays_of_fewer_bits() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            (r#"json.set k $ [0.3,1,3.14159] FPHA FP16"#, "OK"),
            ("json.get k", "[0.3,1.0,3.14]"),
            (
                "json.set k $ {\"a\":[0.1,2],\"n\":0.123456789} fpha bf16",
                "OK",
            ),
            ("json.get k", r#"{"a":[0.1,2.0],"n":0.123456789}"#),
            ("json.set k $ [1] FPHA FP8", "-ERR invalid FPHA type"),
            (
                "json.set k $ [1] FPHA",
                "-ERR wrong number of arguments for 'json.set' command",
            ),
            (
                "json.set k $ [1e100] FPHA FP32",
                "-value out of range for F32 at line 1 column 7",
            ),
            (
                "json.arrappend k $.a",
                "-ERR wrong number of arguments for 'json.arrappend' command",
            ),
        ],
    );
    client.check();
}

/// Powers of floats differ between machines: replicas get the results, at paths that select the
/// same values there.
#[test]
fn powers_are_logged_as_results() {
    let mut client = Client::new();
    set(
        &mut client,
        "k",
        r#"{"i":3,"n":[2.5,{"a\"b":4.0,"\\":2,"é":9}],"s":"x"}"#,
    );
    check(
        &mut client,
        &[
            ("json.numpowby k $.i 2", "[9]"),
            (
                "json.numpowby k $..* 0.5",
                "[3.0,null,null,1.5811388300841898,null,2.0,1.4142135623730951,3.0]",
            ),
            ("json.numpowby k $.s 0.5", "[null]"),
        ],
    );
    let logged = client.logged();
    assert_eq!(
        logged[1..],
        [
            "json.numpowby k $.i 2",
            r#"JSON.SET k $["i"] 3.0"#,
            r#"JSON.SET k $["n"][0] 1.5811388300841898"#,
            r#"JSON.SET k $["n"][1]["a\"b"] 2.0"#,
            r#"JSON.SET k $["n"][1]["\\"] 1.4142135623730951"#,
            r#"JSON.SET k $["n"][1]["é"] 3.0"#,
        ]
    );
    let text = client.run("json.get k");
    for line in &logged[2..] {
        let parts: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        client.args(&parts);
    }
    assert_eq!(client.run("json.get k"), text);
    client.check();
}
