//! The description of the interface by OpenAPI 3.1, from the table of routes and the types of bodies.

use std::sync::OnceLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answer::Encoding;
use super::negotiation::Offered as _;
use super::operation::{Operation, Reply, Route, SchemaOf};
use super::picture::PICTURES;
use super::problem::ErrorBody;
use super::request::IDEMPOTENCY_KEY;
use super::routes::ROUTES;
use super::series::SeriesSchema;
use crate::chart::PictureFormat;
use crate::output::json::AnswerSchema;

/// Statuses of refusals, and what they mean.
const REFUSALS: [(u16, &str); 13] = [
    (400, "The path, query, header or body cannot be read"),
    (401, "No token or certificate that is known"),
    (403, "The caller may not do this, or the request comes from another site"),
    (404, "There is no such scan, dataset or function"),
    (406, "There is no format that the request accepts"),
    (408, "The body did not arrive in time"),
    (409, "The scan's state, or an idempotency key that another request has"),
    (413, "More bytes or work than are taken in one request"),
    (415, "The body is not application/json"),
    (422, "A mistake in the scan or the question, with its place"),
    (429, "A limit of the server or of the caller; Retry-After says when to come again"),
    (503, "The server cannot answer at present"),
    (504, "The scan's deadline has passed"),
];

/// The description as text; made once.
pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_string())
}

/// The description.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // What is left out where it is empty is required of no reply, and what has a default of no request.
    let mut generators =
        Generators { read: settings.clone().into_generator(), written: settings.for_serialize().into_generator() };
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name()] = operation(route, &mut generators);
    }
    let error = generators.written.subschema_for::<ErrorBody>();
    let mut responses = Map::new();
    for (status, meaning) in REFUSALS {
        let content = json!({ "application/json": { "schema": error } });
        responses.insert(format!("Refused{status}"), json!({ "description": meaning, "content": content }));
    }
    let mut schemas = generators.read.take_definitions(true);
    schemas.extend(generators.written.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trawl",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Scans whole markets: a condition, and every symbol is reported with its status. docs/http.md explains the paths.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "security": [{}, { "token": [] }],
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Schemas of what is read and of what is written; no type is both.
struct Generators {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

fn operation(route: &Route, generators: &mut Generators) -> Value {
    let mut parameters = path_parameters(route.path);
    if let Some(query) = route.query {
        parameters.extend(query_parameters(query, &mut generators.read));
    }
    if matches!(route.operation, Operation::Submit | Operation::SubmitAndWait) {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "The same caller, key and request are one scan",
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" },
        }));
        debug_assert!("Idempotency-Key".eq_ignore_ascii_case(IDEMPOTENCY_KEY));
    }
    let mut responses = Map::new();
    responses.insert(route.status.to_string(), reply(route.reply, &mut generators.written));
    for (status, _) in REFUSALS.iter().filter(|(status, _)| may_refuse(route, *status)) {
        responses.insert(status.to_string(), json!({ "$ref": format!("#/components/responses/Refused{status}") }));
    }
    let mut described = json!({
        "operationId": format!("{:?}", route.operation),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = route.body {
        let schema = body(&mut generators.read);
        described["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    if route.rule.is_none() {
        described["security"] = json!([]);
    }
    described
}

/// Whether a route may reply with a status.
fn may_refuse(route: &Route, status: u16) -> bool {
    let negotiates = !matches!(route.reply, Reply::Json(_) | Reply::Events | Reply::Text);
    match status {
        400 | 403 => true,
        406 => negotiates,
        408 | 415 => route.body.is_some(),
        _ => route.rule.is_some(),
    }
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1, "maxLength": 256 } });
    names.map(parameter).collect()
}

/// The properties of a query's type, as parameters.
fn query_parameters(query: SchemaOf, generator: &mut SchemaGenerator) -> Vec<Value> {
    let reference = query(generator).to_value();
    let name = reference["$ref"].as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default();
    // Of use here alone.
    let schema = generator.definitions_mut().remove(name).unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        if let Some(kinds) = schema["type"].as_array() {
            // A parameter that is not given is left out, not null.
            let kind = kinds.iter().find(|kind| *kind != "null").cloned().unwrap_or_default();
            schema["type"] = kind;
        }
        json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
    };
    properties.into_iter().map(parameter).collect()
}

fn reply(reply: Reply, generator: &mut SchemaGenerator) -> Value {
    let text = json!({ "schema": { "type": "string" } });
    let binary = json!({});
    let json = match reply {
        Reply::Answer => Some(generator.subschema_for::<AnswerSchema<'static>>()),
        Reply::Series => Some(generator.subschema_for::<SeriesSchema>()),
        _ => None,
    };
    let of_formats = |formats: &[Encoding]| {
        let content = formats.iter().map(|format| {
            let schema = match format {
                Encoding::Json => json!({ "schema": json }),
                Encoding::Csv | Encoding::JsonLines => text.clone(),
                Encoding::ArrowStream | Encoding::Parquet => binary.clone(),
            };
            (format.media_type().to_owned(), schema)
        });
        Value::Object(content.collect())
    };
    let (description, content) = match reply {
        Reply::Json(schema) => ("Done", json!({ "application/json": { "schema": schema(generator) } })),
        Reply::Answer => ("The answer", of_formats(&Encoding::ALL)),
        Reply::Series => {
            let formats = [Encoding::Json, Encoding::Csv, Encoding::ArrowStream, Encoding::Parquet];
            ("The series", of_formats(&formats))
        }
        Reply::Table => ("The table, written while it is computed", of_formats(&Encoding::TABLES)),
        Reply::Tensors => {
            ("Windows and labels as a table, written while they are computed", of_formats(&Encoding::TENSORS))
        }
        Reply::Picture => {
            let content = PICTURES.map(|format| match format {
                PictureFormat::Svg => (format.media_type().to_owned(), text.clone()),
                PictureFormat::Png => (format.media_type().to_owned(), binary.clone()),
            });
            ("The picture", Value::Object(content.into_iter().collect()))
        }
        Reply::Events => ("Events accepted, progress, ended, refused", json!({ "text/event-stream": text })),
        Reply::Text => ("It answers", json!({ "text/plain": text })),
    };
    json!({ "description": description, "content": content })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_the_description_leads_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("a reference within the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    /// Objects within a schema of which nothing is said, by their places.
    fn free(document: &Value, schema: &Value, place: &str, seen: &mut Vec<String>, found: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            if !seen.iter().any(|known| known == reference) {
                seen.push(reference.to_owned());
                let target = document.pointer(reference.strip_prefix('#').expect("within the document"));
                free(document, target.expect("it leads somewhere"), reference, seen, found);
            }
            return;
        }
        let says =
            ["properties", "additionalProperties", "anyOf", "oneOf", "allOf", "enum", "const", "items", "prefixItems"];
        let is_scalar = |kind: &Value| kind != "object" && kind != "array";
        let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
        let is_described = !schema["type"].is_null() && kinds.iter().all(is_scalar);
        if !is_described && says.iter().all(|key| schema.get(*key).is_none()) {
            found.push(place.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            free(document, property, &format!("{place}.{name}"), seen, found);
        }
        for key in ["items", "additionalProperties"].into_iter().filter(|key| schema[*key].is_object()) {
            free(document, &schema[key], &format!("{place}.{key}"), seen, found);
        }
        for alternative in
            ["anyOf", "oneOf", "allOf", "prefixItems"].iter().filter_map(|key| schema[*key].as_array()).flatten()
        {
            free(document, alternative, place, seen, found);
        }
    }

    #[test]
    fn every_reply_in_json_is_described_down_to_its_last_field() {
        let document = document();
        let (mut seen, mut found) = (Vec::new(), Vec::new());
        for route in ROUTES.iter().filter(|route| route.operation != Operation::OpenApi) {
            let operation = &document["paths"][route.path][route.method.name()];
            for (status, reply) in operation["responses"].as_object().expect("replies") {
                let reply = match reply["$ref"].as_str() {
                    Some(reference) => document.pointer(&reference[1..]).expect("a refusal"),
                    None => reply,
                };
                let schema = &reply["content"]["application/json"]["schema"];
                if !schema.is_null() {
                    let place = format!("{} {status}", route.path);
                    free(&document, schema, &place, &mut seen, &mut found);
                }
            }
        }
        assert!(seen.len() > 40, "{seen:?}");
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn the_description_has_every_route_with_its_parameters() {
        let document = document();
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method.name()];
            assert!(operation["responses"][route.status.to_string()].is_object(), "{route:?}");
            assert_eq!(operation["requestBody"].is_object(), route.body.is_some(), "{route:?}");
        }
        let list = document["paths"]["/v1/scans"]["get"]["parameters"].as_array().expect("parameters");
        let names: Vec<&str> = list.iter().filter_map(|parameter| parameter["name"].as_str()).collect();
        assert_eq!(names, ["active", "before", "dataset", "from", "limit", "owner", "state"]);
        let body = &document["components"]["schemas"]["ScanBody"]["properties"];
        assert!(body["deadline_s"].is_object() && body["document"].is_object(), "{body}");
    }
}
