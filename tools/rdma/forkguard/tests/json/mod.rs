// SPDX-License-Identifier: GPL-2.0

//! Just enough of a JSON reader for the tests; what is no JSON makes them fail.

use std::ops::Index;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    String(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    pub(crate) fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        let Value::Object(members) = self else {
            panic!("not an object: {self:?}");
        };
        match members.iter().find(|(name, _)| name == key) {
            Some((_, value)) => value,
            None => panic!("no {key} in {self:?}"),
        }
    }
}

impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, at: usize) -> &Value {
        &self.as_array().expect("an array")[at]
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<bool> for Value {
    fn eq(&self, other: &bool) -> bool {
        *self == Value::Bool(*other)
    }
}

impl PartialEq<i32> for Value {
    fn eq(&self, other: &i32) -> bool {
        self.as_number() == Some(f64::from(*other))
    }
}

/// Reads all of `text` as one value.
pub(crate) fn parse(text: &str) -> Value {
    let mut rest = text.trim();
    let value = value(&mut rest);
    assert!(rest.is_empty(), "behind the value: {rest}");
    value
}

/// Takes `token` and the space behind it, if it is next.
fn take(rest: &mut &str, token: &str) -> bool {
    match rest.strip_prefix(token) {
        Some(more) => {
            *rest = more.trim_start();
            true
        }
        None => false,
    }
}

fn value(rest: &mut &str) -> Value {
    for (token, value) in [
        ("null", Value::Null),
        ("true", Value::Bool(true)),
        ("false", Value::Bool(false)),
    ] {
        if take(rest, token) {
            return value;
        }
    }
    if take(rest, "[") {
        return Value::Array(list(rest, "]", value));
    }
    if take(rest, "{") {
        return Value::Object(list(rest, "}", |rest| {
            let name = string(rest);
            assert!(take(rest, ":"), "no colon: {rest}");
            (name, value(rest))
        }));
    }
    if rest.starts_with('"') {
        return Value::String(string(rest));
    }
    let end = rest
        .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
        .unwrap_or(rest.len());
    let (number, more) = rest.split_at(end);
    *rest = more.trim_start();
    Value::Number(number.parse().expect("a value"))
}

fn list<T>(rest: &mut &str, end: &str, item: impl Fn(&mut &str) -> T) -> Vec<T> {
    let mut items = Vec::new();
    if take(rest, end) {
        return items;
    }
    loop {
        items.push(item(rest));
        if take(rest, end) {
            return items;
        }
        assert!(take(rest, ","), "no comma: {rest}");
    }
}

fn string(rest: &mut &str) -> String {
    let mut chars = rest.strip_prefix('"').expect("a string").chars();
    let mut text = String::new();
    loop {
        match chars.next().expect("the end of a string") {
            '"' => break,
            '\\' => text.push(match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).expect("four digits");
                    char::from_u32(code).expect("a character")
                }
                Some(c @ ('"' | '\\' | '/')) => c,
                other => panic!("an escape that nobody writes: {other:?}"),
            }),
            c => {
                assert!(u32::from(c) >= 0x20, "a control character in a string");
                text.push(c);
            }
        }
    }
    *rest = chars.as_str().trim_start();
    text
}
