//! packaging/kubernetes as a whole: its files agree with each other.

use std::fs;

use yaml_rust2::{Yaml, YamlLoader};

use crate::own_server::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join("packaging/kubernetes").join(file)).unwrap()
}

fn objects() -> Vec<Yaml> {
    YamlLoader::load_from_str(&read("mortise.yaml")).unwrap()
}

fn the(kind: &str) -> Yaml {
    let mut all = objects().into_iter();
    all.find(|object| object["kind"].as_str() == Some(kind))
        .unwrap_or_else(|| panic!("no {kind}"))
}

fn strings(list: &Yaml) -> Vec<&str> {
    list.as_vec()
        .unwrap()
        .iter()
        .filter_map(Yaml::as_str)
        .collect()
}

fn variable<'a>(container: &'a Yaml, name: &str) -> &'a Yaml {
    let all = container["env"].as_vec().unwrap();
    let found = all
        .iter()
        .find(|variable| variable["name"].as_str() == Some(name));
    &found.unwrap_or_else(|| panic!("no {name}"))["value"]
}

fn setting(name: &str) -> u64 {
    let conf = read("redis.conf");
    let line = conf
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

#[test]
fn every_script_that_a_pod_runs_exists_and_is_in_the_config_map() {
    let kustomization = YamlLoader::load_from_str(&read("kustomization.yaml")).unwrap();
    let files = strings(&kustomization[0]["configMapGenerator"][0]["files"]);
    for file in &files {
        read(file);
    }
    for resource in strings(&kustomization[0]["resources"]) {
        read(resource);
    }
    let manifest = read("mortise.yaml");
    let mut scripts = 0;
    for rest in manifest.split("[sh, /mortise/").skip(1) {
        let script = rest.split_once(']').unwrap().0;
        assert!(files.contains(&script), "{script} is in no config map");
        scripts += 1;
    }
    assert_eq!(scripts, 5);
}

#[test]
fn pods_use_each_others_real_names() {
    let (set, service) = (the("StatefulSet"), the("Service"));
    let (set_name, pods) = (
        set["metadata"]["name"].as_str().unwrap(),
        set["spec"]["replicas"].as_i64().unwrap(),
    );
    let domain = service["metadata"]["name"].as_str().unwrap();
    assert_eq!(set["spec"]["serviceName"].as_str(), Some(domain));
    let names: Vec<String> = (0..pods)
        .map(|pod| format!("{set_name}-{pod}.{domain}.$(NAMESPACE).svc"))
        .collect();
    let template = &set["spec"]["template"];
    let containers = template["spec"]["containers"].as_vec().unwrap();
    assert_eq!(containers.len(), 2);
    for container in containers {
        assert_eq!(
            variable(container, "PEERS").as_str(),
            Some(names.join(" ").as_str())
        );
        assert_eq!(
            variable(container, "SELF").as_str(),
            Some(format!("$(POD).{domain}.$(NAMESPACE).svc").as_str())
        );
        let mounts = container["volumeMounts"].as_vec().unwrap();
        let data = mounts[0]["mountPath"].as_str();
        assert_eq!(variable(container, "DATA").as_str(), data);
    }
    for object in [
        &set["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &template["metadata"]["labels"],
    ] {
        assert_eq!(object["app"].as_str(), Some("mortise"));
    }
}

#[test]
fn the_settings_are_those_of_a_failover_that_loses_no_mutual_exclusion() {
    let pods = the("StatefulSet")["spec"]["replicas"].as_i64().unwrap() as u64;
    assert_eq!(setting("min-replicas-to-write"), pods - 1);
    let needed = setting("lock.max-lease") + setting("min-replicas-max-lag") * 1_000 + 3_000;
    assert!(setting("lock.grace") >= needed);
}

/// Bytes, as a configuration of the server or a manifest writes them.
fn bytes(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "mb" | "Mi" => 1 << 20,
        "gb" | "Gi" => 1 << 30,
        unit => panic!("{unit}"),
    };
    digits.parse::<u64>().unwrap() * unit
}

#[test]
fn keys_and_the_most_waiters_fit_into_the_memory_of_the_container() {
    let server = &the("StatefulSet")["spec"]["template"]["spec"]["containers"][0];
    let limit = bytes(server["resources"]["limits"]["memory"].as_str().unwrap());
    let conf = read("redis.conf");
    let keys = conf
        .lines()
        .find_map(|line| line.strip_prefix("maxmemory "));
    // docs/operating.md, "Sizing": 10,000 blocked, and 500,000 by mail.
    let waiting = 380_000_000 + 200_000_000;
    assert!(bytes(keys.unwrap()) + waiting <= limit * 3 / 4);
}

#[test]
fn restricted_admission_accepts_every_container() {
    let set = the("StatefulSet");
    let pod = &set["spec"]["template"]["spec"];
    let all = &pod["securityContext"];
    assert_eq!(all["runAsNonRoot"].as_bool(), Some(true));
    assert_eq!(
        all["seccompProfile"]["type"].as_str(),
        Some("RuntimeDefault")
    );
    for container in pod["containers"].as_vec().unwrap() {
        let own = &container["securityContext"];
        assert_eq!(own["allowPrivilegeEscalation"].as_bool(), Some(false));
        assert_eq!(strings(&own["capabilities"]["drop"]), ["ALL"]);
    }
}

#[test]
fn the_password_comes_from_a_secret_and_the_image_has_a_version() {
    let set = the("StatefulSet");
    for container in set["spec"]["template"]["spec"]["containers"]
        .as_vec()
        .unwrap()
    {
        let variables = container["env"].as_vec().unwrap();
        let password = variables
            .iter()
            .find(|variable| variable["name"].as_str() == Some("REDISCLI_AUTH"));
        let secret = &password.unwrap()["valueFrom"]["secretKeyRef"];
        assert_eq!(secret["name"].as_str(), Some("mortise"));
    }
    assert!(!read("kustomization.yaml").contains("latest"));
}
