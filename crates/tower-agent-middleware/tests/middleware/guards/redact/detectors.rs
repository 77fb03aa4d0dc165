//! Detectors: their matches, and the text that they leave alone.

use tower_agent_middleware::redact::{Detector, DetectorError, Redact};

#[track_caller]
fn check(detector: Detector, cases: &[(&str, &str)]) {
    let redact = Redact::new([detector]).unwrap();
    for (text, expected) in cases {
        assert_eq!(redact.text(text), *expected, "of {text:?}");
    }
}

#[test]
fn addresses_of_mail_are_found_among_other_words() {
    check(
        Detector::email(),
        &[
            ("Mail jo.doe+x@mail.example.com.", "Mail [email]."),
            ("<jo@example.com>, a@b.org;", "<[email]>, [email];"),
            (
                "mailto:jo@example.com?subject=x",
                "mailto:[email]?subject=x",
            ),
            ("josé.garcía@münchen.de, иван@почта.рф", "[email], [email]"),
            ("写信给jo@example.com。", "写信给[email]。"),
            ("🙂jo@example.com🙂", "🙂[email]🙂"),
            ("jo@example.com@x", "[email]@x"),
            (
                "no: jo@localhost, @jo, jo@, a @ b.com",
                "no: jo@localhost, @jo, jo@, a @ b.com",
            ),
            ("see @scope/package@1.2.3", "see @scope/package@1.2.3"),
            ("", ""),
        ],
    );
}

#[test]
fn card_numbers_are_those_whose_check_digit_is_right() {
    check(
        Detector::card(),
        &[
            ("4111111111111111", "[card]"),
            ("4111 1111 1111 1111", "[card]"),
            ("4111-1111-1111-1111, thanks", "[card], thanks"),
            ("4111\u{a0}1111\u{202f}1111\u{2011}1111", "[card]"),
            ("3782 822463 10005 and 378282246310005", "[card] and [card]"),
            ("5555555555554444;6011111111111117", "[card];[card]"),
            ("30569309025904", "[card]"),
            ("é4111111111111111é", "é[card]é"),
            // A wrong check digit.
            ("4111111111111112", "4111111111111112"),
            ("4111 1111 1111 1112", "4111 1111 1111 1112"),
            // More digits, or fewer.
            ("41111111111111110", "41111111111111110"),
            ("411111111111111", "411111111111111"),
            // A group of its own before or behind.
            ("12 4111 1111 1111 1111 123", "12 [card] 123"),
            // Inside of a word or a fraction.
            ("x4111111111111111", "x4111111111111111"),
            ("0.4242424242424242", "0.4242424242424242"),
            // Milliseconds since 1970.
            ("1700000000000", "1700000000000"),
        ],
    );
}

#[test]
fn ip_addresses_are_distinguished_from_versions_times_and_paths() {
    check(
        Detector::ip_address(),
        &[
            ("10.0.0.1", "[ip]"),
            ("at 192.168.1.254:8080, 10.1.2.3.", "at [ip]:8080, [ip]."),
            ("http://127.0.0.1/x", "http://[ip]/x"),
            ("...10.0.0.1", "...[ip]"),
            ("é10.0.0.1é", "é[ip]é"),
            ("1.2.3 and 1.2.3.4.5", "1.2.3 and 1.2.3.4.5"),
            ("v1.2.3.4", "v1.2.3.4"),
            (
                "120.0.6099.109 and 256.1.1.1",
                "120.0.6099.109 and 256.1.1.1",
            ),
            ("1.2.3.4a", "1.2.3.4a"),
            ("2001:db8:85a3:0:0:8a2e:370:7334", "[ip]"),
            ("2001:db8::1, ::1, fe80::1%eth0", "[ip], [ip], [ip]%eth0"),
            ("::ffff:192.168.0.1", "[ip]"),
            ("[2001:db8::1]:443", "[[ip]]:443"),
            ("fe80::1: down", "[ip]: down"),
            ("at 12:30:45 and 1:2:3", "at 12:30:45 and 1:2:3"),
            ("std::fmt, a::b, ::", "std::fmt, a::b, ::"),
            ("00:1a:2b:3c:4d:5e", "00:1a:2b:3c:4d:5e"),
            ("1:2:3:4:5:6:7:8:9:10", "1:2:3:4:5:6:7:8:9:10"),
        ],
    );
}

#[test]
fn secrets_are_recognised_by_their_form() {
    let key = |front: &str, length: usize| format!("{front}{}", "aB3".repeat(length));
    let secrets = [
        key("sk-", 8),
        key("sk-ant-api03-", 8),
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        key("ghp_", 12),
        key("github_pat_", 9),
        key("glpat-", 7),
        format!("AIza{}", "x".repeat(35)),
        key("hf_", 12),
        key("npm_", 12),
        "xoxb-123456789012-abcdef".to_owned(),
        key("sk_live_", 8),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl".to_owned(),
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc-d\n-----END RSA PRIVATE KEY-----".to_owned(),
    ];
    for secret in secrets {
        let text = format!("key=\"{secret}\", é");
        check(Detector::secret(), &[(&text, "key=\"[secret]\", é")]);
    }
    for harmless in [
        "sk-short, a risk-averse-and-otherwise-careful-person, AKIA, ghp_, eyJ.eyJ.x",
        "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----",
    ] {
        check(Detector::secret(), &[(harmless, harmless)]);
    }
}

#[test]
fn words_are_found_whole_in_any_case_and_script() {
    check(
        Detector::words("name", ["Paul", "Paul Müller", "café", "北京", "a.b"]),
        &[
            ("Paul, PAUL and Paula", "[name], [name] and Paula"),
            ("paul müller's", "[name]'s"),
            ("le café noir", "le [name] noir"),
            ("在北京市", "在[name]市"),
            ("a.b axb", "[name] axb"),
        ],
    );
}

#[test]
fn the_longest_match_counts_and_of_equals_the_first_detector() {
    let detectors = [
        Detector::pattern("short", "a+b"),
        Detector::pattern("long", "a+b+c?"),
        Detector::email(),
    ];
    let redact = Redact::new(detectors).unwrap();

    assert_eq!(
        redact.text("ab abb abc ab@c.de"),
        "[short] [long] [long] [email]"
    );
}

#[test]
fn a_check_that_rejects_the_longest_match_is_tried_on_shorter_ones() {
    let even = Detector::pattern("even", "x+").check(|found| found.len() % 2 == 0);

    check(
        even,
        &[("xxxxx", "[even]x"), ("x", "x"), ("xx x", "[even] x")],
    );
}

#[test]
fn a_match_has_a_longest_length() {
    let redact = Redact::new([Detector::pattern("a", "(?-u:\\b)a+(?-u:\\b)")]).unwrap();
    let redact = redact.with_max_len(4);

    assert_eq!(redact.max_len(), 4);
    assert_eq!(redact.text("a aaaa aaaaa"), "[a] [a] aaaaa");
}

#[test]
fn numbered_placeholders_tell_texts_apart() {
    let redact = Redact::new([Detector::email()]).unwrap().numbered();

    assert_eq!(
        redact.text("a@b.co c@d.co a@b.co"),
        "[email-1] [email-2] [email-1]"
    );
    assert_eq!(redact.text("c@d.co"), "[email-1]", "a text of its own");
}

#[test]
fn an_unusable_detector_is_refused_with_its_kind() {
    let error = |detector| Redact::new([detector]).unwrap_err();

    let broken = error(Detector::pattern("order", "("));
    assert!(
        matches!(&broken, DetectorError::Pattern { kind, .. } if kind == "order"),
        "{broken}"
    );
    assert!(broken.to_string().contains("unclosed group"), "{broken}");
    let boundary = error(Detector::pattern("order", r"\bx\b"));
    assert!(
        boundary.to_string().contains("Unicode word boundar"),
        "{boundary}"
    );
    let bytes = error(Detector::pattern("order", "(?-u:.)"));
    assert!(bytes.to_string().contains("invalid UTF-8"), "{bytes}");
    let empty = DetectorError::MatchesEmpty {
        kind: "order".to_owned(),
    };
    assert_eq!(error(Detector::pattern("order", "a*")), empty);
    assert_eq!(error(Detector::words("order", [""])), empty);
    assert_eq!(
        error(Detector::pattern("[x]", "a")),
        DetectorError::Kind("[x]".to_owned())
    );
    let huge = error(Detector::pattern("huge", r"[\p{L}\p{N}]{9000}"));
    assert!(matches!(huge, DetectorError::Pattern { .. }));
    assert_eq!(
        Redact::new([Detector::words("none", [""; 0])])
            .unwrap()
            .text("a"),
        "a"
    );
}

/// Returns a text with its escapes, as they are in the docs, replaced by what they stand for.
fn unescaped(text: &str) -> String {
    let mut pieces = text.split("\\u{");
    let mut plain = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let (code, rest) = piece.split_once('}').unwrap();
        plain.push(u32::from_str_radix(code, 16).unwrap().try_into().unwrap());
        plain.push_str(rest);
    }
    plain
}

#[test]
fn the_table_of_spellings_is_true() {
    let docs = include_str!("../../../../src/redact/mod.rs");
    let detectors = [
        Detector::email(),
        Detector::card(),
        Detector::ip_address(),
        Detector::secret(),
    ];
    let redact = Redact::new(detectors).unwrap();
    let (_, table) = docs
        .split_once("| spelling | text | becomes |\n//! |---|---|---|\n")
        .unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("//! | "));
    let mut stays = 0;
    let mut found = 0;
    for row in rows {
        let [spelling, text, becomes] =
            &row.trim_end_matches(" |").split(" | ").collect::<Vec<_>>()[..]
        else {
            panic!("{row}")
        };
        let text = unescaped(text.trim_matches('`'));
        let expected = if *becomes == "stays as it is" {
            stays += 1;
            text.clone()
        } else {
            found += 1;
            unescaped(becomes.trim_matches('`'))
        };
        assert_eq!(redact.text(&text), expected, "{spelling}");
    }
    assert_eq!((found, stays), (10, 17));
}
