package mortise;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The README's commands and its programs, as a newcomer would try them. */
@Timeout(240)
class ReadmeTest {
    @Test
    void the_readme_leads_to_a_working_lock() throws Exception {
        String page = Files.readString(Path.of("README.md"));
        Path sell = Files.createTempDirectory("sell");
        Files.writeString(sell.resolve("Sell.java"), block(page, "java"));
        Files.writeString(sell.resolve("pom.xml"), block(page, "xml"));
        try (var server = new TestServer()) {
            // From a copy: these tests themselves run in this folder's target.
            Path copy = Files.createTempDirectory("mortise").resolve("java");
            String commands = "set -e; mkdir " + copy + "; cp -r " + Path.of("pom.xml").toAbsolutePath() + " " + Path.of("src").toAbsolutePath() + " " + copy + "\n"
                + block(page, "sh").replace("…/mortise/helpers/java", copy.toString()).replace("=Sell", "=Sell -Dexec.args=" + server.port);
            String said = run(sell, "bash", "-c", commands);
            assertTrue(said.contains("sold, with the fencing token") && said.contains("and once more"), said);
            assertTrue(server.isFree("stock:17"));
        }
    }

    @Test
    void the_spring_program_of_the_readme_runs() throws Exception {
        String page = Files.readString(Path.of("README.md"));
        Path shop = Files.createTempDirectory("shop");
        try (var server = new TestServer()) {
            String program = block(page.substring(page.indexOf("## Spring")), "java").replace("6379", "" + server.port);
            Files.writeString(shop.resolve("Shop.java"), program);
            String path = System.getProperty("java.class.path");
            String bin = System.getProperty("java.home") + "/bin/";
            run(shop, bin + "javac", "-parameters", "-cp", path, "Shop.java");
            String said = run(shop, bin + "java", "-cp", path + ":.", "Shop");
            assertTrue(said.contains("sold 17, with the fencing token"), said);
            assertTrue(server.isFree("stock:17"));
        }
    }

    private static String run(Path folder, String... command) throws Exception {
        var process = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true).start();
        var said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        return said;
    }

    private static String block(String page, String language) {
        int start = page.indexOf("```" + language + "\n") + language.length() + 4;
        return page.substring(start, page.indexOf("```", start));
    }
}
