//! Which metrics and labels an expression of PromQL uses. It knows the language's words and nothing of its grammar: an
//! unknown word is an error, so that a misspelt name cannot pass for a function.

use std::collections::{BTreeMap, BTreeSet};

/// Functions and aggregations that are used.
const FUNCTIONS: [&str; 16] = [
    "changes",
    "last_over_time",
    "sum",
    "max",
    "rate",
    "increase",
    "deriv",
    "histogram_quantile",
    "label_replace",
    "time",
    "vector",
    "absent",
    "min",
    "avg",
    "count",
    "label_values",
];
const WORDS: [&str; 4] = ["and", "or", "unless", "bool"];
/// A list of labels follows.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

/// The names found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Each metric with the labels that select from it, and the values that they are compared with, alternatives
    /// separately.
    pub metrics: Vec<(String, BTreeMap<String, Vec<String>>)>,
    /// Labels that are grouped, joined or created.
    pub labels: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            '"' | '\'' => {
                let mut text = String::new();
                loop {
                    match rest.next() {
                        Some(c) if c == first => break,
                        Some(c) => text.push(c),
                        None => return Err("an open quotation".to_owned()),
                    }
                }
                tokens.push(Token::Text(text));
            }
            // A range, with the variables of Grafana.
            '[' => while rest.next().is_some_and(|c| c != ']') {},
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':')) {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
            // A number.
            c if c.is_ascii_digit() => while rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {},
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Sign(c)),
        }
    }
    Ok(tokens)
}

/// The names used in an expression.
///
/// # Errors
/// A word that is neither a metric's, a label's nor the language's.
pub fn named(expression: &str) -> Result<Named, String> {
    let tokens = tokens(expression)?;
    let mut named = Named::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let Token::Word(word) = token else { continue };
        let opens = |sign| tokens.get(at) == Some(&Token::Sign(sign));
        if LISTS.contains(&word.as_str()) && opens('(') {
            at += 1;
            while let Some(token) = tokens.get(at).filter(|token| **token != Token::Sign(')')) {
                if let Token::Word(label) = token {
                    named.labels.insert(label.clone());
                }
                at += 1;
            }
        } else if word == "label_replace" && opens('(') {
            // label_replace(v, "made", "$1", "from", "(.*)"): the two labels are the strings that are plain words.
            let texts = tokens[at..].iter().filter_map(|token| match token {
                Token::Text(text) if text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => Some(text.clone()),
                _ => None,
            });
            named.labels.extend(texts.take(2));
        } else if !is_language(word, opens('(') || tokens.get(at).is_some_and(is_list)) {
            let mut matched = BTreeMap::new();
            if opens('{') {
                at += 1;
                let mut label = None;
                while let Some(token) = tokens.get(at).filter(|token| **token != Token::Sign('}')) {
                    match token {
                        Token::Word(word) => label = Some(word.clone()),
                        Token::Text(text) => {
                            let label = label.take().ok_or("a value without its label")?;
                            matched.insert(label, text.split('|').map(str::to_owned).collect());
                        }
                        Token::Sign(_) => {}
                    }
                    at += 1;
                }
            }
            named.metrics.push((word.clone(), matched));
        }
    }
    Ok(named)
}

/// Whether a word belongs to the language; a function only where it is called.
fn is_language(word: &str, called: bool) -> bool {
    FUNCTIONS.contains(&word) && called || WORDS.contains(&word) || LISTS.contains(&word)
}

fn is_list(token: &Token) -> bool {
    matches!(token, Token::Word(word) if LISTS.contains(&word.as_str()))
}

#[test]
fn the_names_in_an_expression_are_found() {
    let found = named(
        r#"sum by (le, x) (rate(a_total{k="v|w",l!~"z"}[5m])) / on (y) group_left () (b:c > 1e3) and time() > 2.5"#,
    );
    let found = found.unwrap();
    let matched = BTreeMap::from([
        ("k".to_owned(), vec!["v".to_owned(), "w".to_owned()]),
        ("l".to_owned(), vec!["z".to_owned()]),
    ]);
    assert_eq!(found.metrics, [("a_total".to_owned(), matched), ("b:c".to_owned(), BTreeMap::new())]);
    assert_eq!(found.labels, BTreeSet::from(["le", "x", "y"].map(str::to_owned)));
    let made = named(r#"label_replace(m, "made", "$1", "from", "(.*)")"#).unwrap();
    assert_eq!(made.labels, BTreeSet::from(["made", "from"].map(str::to_owned)));
    assert_eq!(
        named("smu(m)").unwrap().metrics[0].0,
        "smu",
        "a word that is not part of the language counts as a metric"
    );
    assert!(named(r#"m{k="v}"#).is_err());
}
